// Package workloadname makes the names of quota Workloads as Kueue does: from the kind and the name of their owner, and a hash of its identity.
package workloadname

import (
	"crypto/sha1" //nolint:gosec // Kueue's names of quota Workloads are made with it; nothing here is secret
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	maxLength  = 253
	hashLength = 5
)

// An Owner identifies the owner of a quota Workload.
type Owner struct {
	Kind, Group, Name string
	UID               types.UID
}

// Of returns the name of a quota Workload of an owner. Names differ for two owners that have the same name one after the other. If an owner
// has several quota Workloads, extra distinguishes them. Without extra the name is the one that Kueue gives.
func Of(owner Owner, extra string) string {
	prefix := strings.ToLower(owner.Kind) + "-" + owner.Name
	identity := fmt.Sprintf("%s\n%s\n%s\n%s", owner.Kind, owner.Group, owner.Name, owner.UID)
	if extra != "" {
		prefix += "-" + extra
		identity += "\n" + extra
	}
	hash := sha1.Sum([]byte(identity)) //nolint:gosec // see the import
	prefix = strings.TrimRight(prefix[:min(len(prefix), maxLength-1-hashLength)], "-.")
	return prefix + "-" + hex.EncodeToString(hash[:])[:hashLength]
}
