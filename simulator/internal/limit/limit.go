// Package limit reads and changes the limits of the queues in a snapshot.
package limit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Limit is a limit of a ClusterQueue or Cohort: nominalQuota, borrowingLimit or lendingLimit of one resource of one flavor.
type Limit struct {
	Kind     visibility.NodeKind
	Name     string
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
	Field    visibility.Limit
}

// Value returns the value of a limit. ok is false if it is not set.
func (l *Limit) Value(s *snapshot.Snapshot) (value resource.Quantity, ok bool) {
	q := l.in(s)
	if q == nil {
		return value, false
	}
	switch l.Field {
	case visibility.BorrowingLimit:
		return ptr.Deref(q.BorrowingLimit, value), q.BorrowingLimit != nil
	case visibility.LendingLimit:
		return ptr.Deref(q.LendingLimit, value), q.LendingLimit != nil
	case visibility.NominalQuota:
		return q.NominalQuota, true
	case visibility.SharedQuota:
	}
	return value, false
}

// in returns the quota of a snapshot that has a limit, or nil.
func (l *Limit) in(s *snapshot.Snapshot) *kueue.ResourceQuota {
	var groups []kueue.ResourceGroup
	for _, q := range s.ClusterQueues {
		if l.Kind == visibility.ClusterQueue && q.Name == l.Name {
			groups = q.Spec.ResourceGroups
		}
	}
	for _, c := range s.Cohorts {
		if l.Kind == visibility.Cohort && c.Name == l.Name {
			groups = c.Spec.ResourceGroups
		}
	}
	return ledger.QuotaOf(groups, quota.FlavorResource{Flavor: l.Flavor, Resource: l.Resource})
}

// Set returns a snapshot with another value of a limit. It shares all other objects with the original.
func (l *Limit) Set(s *snapshot.Snapshot, to resource.Quantity) *snapshot.Snapshot {
	part := *s
	part.ClusterQueues, part.Cohorts = slices.Clone(part.ClusterQueues), slices.Clone(part.Cohorts)
	for i, q := range part.ClusterQueues {
		if l.Kind == visibility.ClusterQueue && q.Name == l.Name {
			part.ClusterQueues[i] = q.DeepCopy()
		}
	}
	for i, c := range part.Cohorts {
		if l.Kind == visibility.Cohort && c.Name == l.Name {
			part.Cohorts[i] = c.DeepCopy()
		}
	}
	q := l.in(&part)
	if q == nil {
		return &part
	}
	switch l.Field {
	case visibility.BorrowingLimit:
		q.BorrowingLimit = &to
	case visibility.LendingLimit:
		q.LendingLimit = &to
	case visibility.NominalQuota:
		q.NominalQuota = to
	case visibility.SharedQuota:
	}
	return &part
}
