// Package visibility describes why a pending quota Workload waits, and for what, beyond Kueue's visibility API. An Explanation is the JSON
// value of the annotation tranche.dev/explanation on a PendingWorkload of visibility.kueue.x-k8s.io.
package visibility

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An Explanation describes why a quota Workload is not admitted at present.
type Explanation struct {
	// Check is the first check that the quota Workload does not pass, such as QuotaFits. It is empty if all checks pass, and the quota
	// Workload waits for the next scheduling cycle.
	Check string `json:"check,omitempty"`

	// Reason is the reason of the condition tranche.dev/Waiting of the quota Workload, such as WaitingForQuota.
	Reason string `json:"reason,omitempty"`

	// Message is the current message of that condition. It names no objects in other namespaces.
	Message string `json:"message,omitempty"`

	// Behind names the quota Workload that must be admitted first: the one ahead in a ClusterQueue with queueingStrategy StrictFIFO, or
	// the one that this quota Workload would delay, for which quota is reserved. It is empty for one of another namespace if the
	// explanation is read through a LocalQueue.
	Behind *Reference `json:"behind,omitempty"`

	// Alternatives are ways to admit the quota Workload, each with other flavors: it fits as soon as one of them has no shortage. At most 4
	// are returned, those that are tried first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
}

// An Alternative has the shortages of one combination of flavors.
type Alternative struct {
	// Shortages has at least one entry, in the order of flavors and resources.
	Shortages []Shortage `json:"shortages"`
}

// A Shortage is one resource of one flavor of which there is not enough.
type Shortage struct {
	// Flavor is the ResourceFlavor.
	Flavor kueue.ResourceFlavorReference `json:"flavor"`

	// Resource is the resource that is short.
	Resource corev1.ResourceName `json:"resource"`

	// Needed is how much the quota Workload asks for.
	Needed resource.Quantity `json:"needed"`

	// Free is how much of that it could have now.
	Free resource.Quantity `json:"free"`

	// Missing is how much has to be released, or added to the limit. It is more than Needed less Free if usage already exceeds the limit.
	Missing resource.Quantity `json:"missing"`

	// Constraint is the limit that fails. If several fail it is the tightest.
	Constraint Constraint `json:"constraint"`

	// Holders are the largest holders of the quota that counts against the limit, the largest first, as many as are needed to release the
	// missing amount, but at most 5.
	Holders []Holder `json:"holders,omitempty"`

	// MoreHolders is how many more holders are needed than the 5 in Holders.
	MoreHolders int `json:"moreHolders,omitempty"`

	// Unreleasable is what would still be missing if all others released their quota: it requires a higher limit, or the end of an earlier
	// stage of the same JobSet.
	Unreleasable *resource.Quantity `json:"unreleasable,omitempty"`
}

// A Constraint is a limit in the tree of ClusterQueues and Cohorts.
type Constraint struct {
	// Kind is ClusterQueue or Cohort.
	Kind NodeKind `json:"kind"`

	// Name is the name of the ClusterQueue or Cohort.
	Name string `json:"name"`

	// Limit is the kind of limit.
	Limit Limit `json:"limit"`

	// Amount is the value of the limit.
	Amount resource.Quantity `json:"amount"`
}

// A NodeKind is a kind of node in the tree of quota.
type NodeKind string

const (
	// ClusterQueue is a leaf of the tree.
	ClusterQueue NodeKind = "ClusterQueue"

	// Cohort is a node with ClusterQueues and other Cohorts below it.
	Cohort NodeKind = "Cohort"
)

// A Limit is one of the limits of a node.
type Limit string

const (
	// NominalQuota is the nominal quota of a ClusterQueue without a Cohort.
	NominalQuota Limit = "nominalQuota"

	// BorrowingLimit is how much more than their own quota a ClusterQueue, or the members of a Cohort, may use.
	BorrowingLimit Limit = "borrowingLimit"

	// LendingLimit is how much of its quota another ClusterQueue or Cohort lends: it keeps at least as much as is missing, and does not use
	// it.
	LendingLimit Limit = "lendingLimit"

	// SharedQuota is the quota that the members of a Cohort share, including the Cohort's own.
	SharedQuota Limit = "sharedQuota"
)

// A HolderKind is the kind of object that holds quota as a whole.
type HolderKind string

const (
	// JobSet is a JobSet with all its stages.
	JobSet HolderKind = "JobSet"

	// Gang is a gang of pods that is admitted in parts, with all its parts.
	Gang HolderKind = "Gang"

	// Workload is a quota Workload of a stage without a stage plan, such as that of any other gang of pods.
	Workload HolderKind = "Workload"
)

// A Holder holds quota that would be enough if it were released, alone or together with that of others.
type Holder struct {
	// Kind is JobSet, Gang or Workload.
	Kind HolderKind `json:"kind"`

	// Reference is the name of the holder. It is empty for holders of other namespaces if the explanation is read through a LocalQueue.
	Reference `json:",inline"`

	// ClusterQueue is the ClusterQueue in which it holds the quota.
	ClusterQueue string `json:"clusterQueue"`

	// Amount is how much of the resource would be released where it is missing.
	Amount resource.Quantity `json:"amount"`

	// Kept is true if some of it is reserved for the holder and not used yet: for its later stages, or until the victims of its preemption
	// are gone.
	Kept bool `json:"kept,omitempty"`

	// Leaving is true if the holder has been evicted, and its pods have not terminated yet.
	Leaving bool `json:"leaving,omitempty"`

	// RunsUntil is when the holder, which runs until then, will be preempted. It is missing if the holder has no notice of its preemption.
	RunsUntil *time.Time `json:"runsUntil,omitempty"`
}

// A Reference names an object in a namespace.
type Reference struct {
	// Namespace is the namespace of the object.
	Namespace string `json:"namespace,omitempty"`

	// Name is the name of the object.
	Name string `json:"name,omitempty"`
}

func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

// RedactedFor returns the explanation without the names of objects in other namespaces than this one, for readers who may only see a
// LocalQueue. The message contains no such names. The original is not changed.
func (e *Explanation) RedactedFor(namespace string) Explanation {
	return e.Redacted(func(name string) bool { return name == namespace })
}

// Redacted is like RedactedFor, for readers who may see several namespaces.
func (e *Explanation) Redacted(sees func(namespace string) bool) Explanation {
	redacted := *e
	if e.Behind != nil && !sees(e.Behind.Namespace) {
		redacted.Behind = nil
	}
	redacted.Alternatives = slices.Clone(e.Alternatives)
	for i := range redacted.Alternatives {
		a := &redacted.Alternatives[i]
		a.Shortages = slices.Clone(a.Shortages)
		for k := range a.Shortages {
			s := &a.Shortages[k]
			s.Holders = slices.Clone(s.Holders)
			for m := range s.Holders {
				if h := &s.Holders[m]; !sees(h.Namespace) {
					h.Reference = Reference{}
				}
			}
		}
	}
	return redacted
}
