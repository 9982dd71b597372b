// Package visibility has what Tranche tells of a pending quota Workload beyond Kueue's visibility API: why it waits, and for what. It is
// the JSON value of the annotation tranche.dev/explanation on a PendingWorkload of visibility.kueue.x-k8s.io.
package visibility

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An Explanation says why a quota Workload is not admitted, as it is now.
type Explanation struct {
	// Check is the first check that the quota Workload does not pass, such as QuotaFits. It is empty if nothing is in its way but the
	// next decision.
	Check string `json:"check,omitempty"`

	// Reason is that of the condition tranche.dev/Waiting of the quota Workload, such as WaitingForQuota.
	Reason string `json:"reason,omitempty"`

	// Message is the sentence of that condition, as it would be now. It names nothing in other namespaces.
	Message string `json:"message,omitempty"`

	// Behind names the quota Workload that must be admitted first, in a ClusterQueue with queueingStrategy StrictFIFO. It is
	// empty for one of another namespace if the explanation is read through a LocalQueue.
	Behind *Reference `json:"behind,omitempty"`

	// Alternatives are ways to admit the quota Workload, each with other flavors: it fits as soon as nothing is short in one of them.
	// At most 4 are told, those that are tried first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
}

// An Alternative is what is short with one combination of flavors.
type Alternative struct {
	// Shortages has at least one entry, in the order of flavors and resources.
	Shortages []Shortage `json:"shortages"`
}

// A Shortage is one resource of one flavor of which there is not enough.
type Shortage struct {
	// Flavor is the ResourceFlavor.
	Flavor kueue.ResourceFlavorReference `json:"flavor"`

	// Resource is what there is not enough of.
	Resource corev1.ResourceName `json:"resource"`

	// Needed is how much the quota Workload asks for, Free how much of that it could have now.
	Needed resource.Quantity `json:"needed"`

	// Free is how much it could have now.
	Free resource.Quantity `json:"free"`

	// Missing is how much has to be given back, or added to the limit. It is more than Needed less Free where more is used already than
	// the limit allows.
	Missing resource.Quantity `json:"missing"`

	// Constraint is the limit that fails. Of several that fail it is the tightest.
	Constraint Constraint `json:"constraint"`

	// Holders are those who hold the most of it where it counts, the largest first, and as many as are needed to give back what is
	// missing, but at most 5.
	Holders []Holder `json:"holders,omitempty"`

	// MoreHolders is how many more are needed than the 5 in Holders.
	MoreHolders int `json:"moreHolders,omitempty"`

	// Unreleasable is what would still be missing if all others gave back what they hold: it takes a higher limit, or the end of an
	// earlier stage of the same JobSet.
	Unreleasable *resource.Quantity `json:"unreleasable,omitempty"`
}

// A Constraint is a limit in the tree of ClusterQueues and Cohorts.
type Constraint struct {
	// Kind is ClusterQueue or Cohort.
	Kind NodeKind `json:"kind"`

	// Name is that of the ClusterQueue or Cohort.
	Name string `json:"name"`

	// Limit says which of its limits it is.
	Limit Limit `json:"limit"`

	// Amount is what the limit is.
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

	// LendingLimit is how much of its quota another ClusterQueue or Cohort lends: it keeps back at least as much as is missing, and does
	// not use it.
	LendingLimit Limit = "lendingLimit"

	// SharedQuota is what the members of a Cohort share, with what the Cohort has itself.
	SharedQuota Limit = "sharedQuota"
)

// A HolderKind is what holds quota as a whole.
type HolderKind string

const (
	// JobSet is a JobSet with all its stages.
	JobSet HolderKind = "JobSet"

	// Workload is a quota Workload that belongs to no JobSet.
	Workload HolderKind = "Workload"
)

// A Holder holds quota that would be enough if it were given back, alone or together with that of others.
type Holder struct {
	// Kind is JobSet or Workload.
	Kind HolderKind `json:"kind"`

	// Reference is its name. It is empty for holders of other namespaces if the explanation is read through a LocalQueue.
	Reference `json:",inline"`

	// ClusterQueue is where it holds the quota.
	ClusterQueue string `json:"clusterQueue"`

	// Amount is how much of the resource would become free where it is missing.
	Amount resource.Quantity `json:"amount"`

	// Kept tells that some of it is kept for the holder and not used yet: for its later stages, or until those have gone whom it
	// preempts.
	Kept bool `json:"kept,omitempty"`

	// Leaving tells that the holder has been evicted, and that its pods have not ended yet.
	Leaving bool `json:"leaving,omitempty"`
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

// WithoutStrangers leaves out the names of what is in other namespaces than this one, for readers who may see no more than a LocalQueue.
// The message has none. The explanation itself stays as it is.
func (e *Explanation) WithoutStrangers(namespace string) Explanation {
	told := *e
	if e.Behind != nil && e.Behind.Namespace != namespace {
		told.Behind = nil
	}
	told.Alternatives = make([]Alternative, len(e.Alternatives))
	for i := range e.Alternatives {
		told.Alternatives[i].Shortages = make([]Shortage, len(e.Alternatives[i].Shortages))
		for k, s := range e.Alternatives[i].Shortages {
			holders := make([]Holder, len(s.Holders))
			for m, h := range s.Holders {
				if h.Namespace != namespace {
					h.Reference = Reference{}
				}
				holders[m] = h
			}
			s.Holders = holders
			told.Alternatives[i].Shortages[k] = s
		}
	}
	return told
}
