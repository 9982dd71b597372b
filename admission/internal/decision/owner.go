package decision

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
)

// An Owner is the object that a stage plan belongs to.
type Owner struct {
	Kind OwnerKind
	Key  types.NamespacedName
}

// An OwnerKind is a kind of object that can have a stage plan, as messages name it.
type OwnerKind string

const (
	// JobSetOwner is a JobSet, which is admitted stage by stage.
	JobSetOwner OwnerKind = "JobSet"
	// GangOwner is a gang of pods that is admitted in parts. Its plan has a stage for each part.
	GangOwner OwnerKind = "gang"
)

// Compare orders owners by namespace, name and kind.
func (o Owner) Compare(other Owner) int {
	return cmp.Or(cmp.Compare(o.Key.Namespace, other.Key.Namespace), cmp.Compare(o.Key.Name, other.Key.Name), cmp.Compare(o.Kind, other.Kind))
}
