package invariants

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// A holder is one quota Workload.
type holder struct {
	name, jobSet string
	podSets      []string
	held         []*holding
	// isExtra is true if it pays for a pod in addition to the pods that a gang started with.
	isExtra   bool
	queue     string
	usage     ledger.Sum
	admission *kueue.Admission
	finished  bool
	evicted   bool
	// isOfKueue is true if Kueue's manager has reserved what it holds.
	isOfKueue bool
	// isOfKueueJob is true if Kueue's manager also starts and stops the Job that it is for.
	isOfKueueJob bool
	last         *kueue.Workload
}

// beginning is the resource version of everything that was there before the audit.
const beginning = 1

// A holding is one time that a quota Workload holds quota.
type holding struct {
	span
	// admitted is the resource version at which it was first Admitted, or 0.
	admitted uint64
	// slots are for how many pods it pays, from one change to the next.
	slots []slots
	// batches are those that it starts with.
	batches []batch
}

// slots are the pods that it pays for, and what it is charged for them, from one change to the next.
type slots struct {
	from    uint64
	charged map[kueue.PodSetReference]ledger.Amounts
}

// A batch is several quota Workloads that start together: the parts of a gang, or those of a GangGroup.
type batch struct {
	key  string
	size int
}

func (h *holder) isHolding() bool {
	last := len(h.held) - 1
	return last >= 0 && h.held[last].to == 0
}

// release records that a quota Workload no longer holds quota.
func (h *holder) release(now moment) {
	if h.isHolding() {
		h.held[len(h.held)-1].to = now.latest
	}
	h.usage, h.admission, h.evicted = nil, nil, false
}

func (a *Auditor) seeWorkload(w *kueue.Workload, now moment, what watch.EventType) {
	h := a.holders[w.UID]
	if h == nil {
		h = &holder{name: w.Namespace + "/" + w.Name, jobSet: w.Labels[apis.JobUIDLabel]}
		for _, podSet := range w.Spec.PodSets {
			h.podSets = append(h.podSets, string(podSet.Name))
		}
		h.isExtra = w.Labels[apis.ExtraLabel] != ""
		a.holders[w.UID] = h
	}
	h.last = w
	isGone := what == watch.Deleted
	isHolding := quotaworkload.IsCharged(w) && !isGone
	switch {
	case isHolding && !h.isHolding():
		a.reserved(h, w, now)
	case isHolding:
		if !equality.Semantic.DeepEqual(h.admission, w.Status.Admission) {
			a.report(now, h, "I4: was admitted again while it held quota")
			h.admission, h.queue = w.Status.Admission.DeepCopy(), string(w.Status.Admission.ClusterQueue)
		}
		h.evicted = h.evicted || isTrue(w.Status.Conditions, kueue.WorkloadEvicted)
		a.charge(h, w, now)
		h.note(w, now)
	case h.isHolding():
		if !isGone && now.earliest == now.latest && !h.evicted && !mayGiveBack(w) {
			a.report(now, h, "I4: no longer holds quota, and was neither evicted nor finished nor suspended nor gated")
		}
		h.release(now)
	}
	h.finished = h.finished || isTrue(w.Status.Conditions, kueue.WorkloadFinished)
}

// reserved records that a quota Workload has reserved quota. What was there before the audit may exceed quota, and so may what Tranche adopts.
func (a *Auditor) reserved(h *holder, w *kueue.Workload, now moment) {
	if h.finished {
		a.report(now, h, "I4: holds quota again after it had finished")
	}
	h.held = append(h.held, &holding{span: span{from: now.earliest}, batches: batchesOf(w)})
	h.note(w, now)
	h.evicted, h.isOfKueue = isTrue(w.Status.Conditions, kueue.WorkloadEvicted), isAdmittedByKueue(w)
	owner := metav1.GetControllerOf(w)
	h.isOfKueueJob = h.isOfKueue && owner != nil && owner.Kind == "Job" && w.Labels[apis.JobLabel] == ""
	h.queue, h.usage, h.admission = string(w.Status.Admission.ClusterQueue), h.usageOf(w), w.Status.Admission.DeepCopy()
	if now.earliest != beginning && !isAdopted(w) {
		a.checkQuota(h, now)
	}
}

// isAdopted reports whether a quota Workload is for pods that lived before it was charged for them.
func isAdopted(w *kueue.Workload) bool { return w.Annotations[apis.AdoptedAnnotation] != "" }

// note records which pods a quota Workload that holds quota pays for.
func (h *holder) note(w *kueue.Workload, now moment) {
	last := h.held[len(h.held)-1]
	if isAdopted(w) {
		now, last.from, last.admitted, last.slots = moment{beginning, beginning}, beginning, 0, nil
	}
	if last.admitted == 0 && isTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
		last.admitted = now.earliest
	}
	if len(last.slots) == 0 {
		granted := w.DeepCopy()
		granted.Status.ReclaimablePods = nil // what was reclaimed while the auditor did not watch was used before
		last.slots = []slots{{now.earliest, ledger.Charged(granted)}}
	}
	charged := ledger.Charged(w)
	if n := len(last.slots); !maps.EqualFunc(last.slots[n-1].charged, charged, maps.Equal) {
		last.slots = append(last.slots, slots{now.latest, charged})
	}
}

// batchesOf returns the quota Workloads with which a quota Workload starts.
func batchesOf(w *kueue.Workload) []batch {
	var all []batch
	for key, annotation := range map[string]string{apis.PlanUIDLabel: apis.PartsAnnotation, apis.AdmitTogetherLabel: apis.AdmitTogetherCountAnnotation} {
		if size, err := strconv.Atoi(w.Annotations[annotation]); err == nil && w.Labels[key] != "" {
			all = append(all, batch{key + "=" + w.Labels[key], size})
		}
	}
	return all
}

// charge records the charges of a quota Workload while it holds quota.
func (a *Auditor) charge(h *holder, w *kueue.Workload, now moment) {
	usage := h.usageOf(w)
	grown := false
	for key, amount := range usage {
		grown = grown || amount > h.usage[key]
	}
	if maps.Equal(usage, h.usage) {
		return
	}
	h.usage = usage
	if grown {
		h.isOfKueue = false // Kueue charges a reservation once
		a.checkQuota(h, now)
	}
}

// mayGiveBack reports whether a quota Workload has a condition that explains why it no longer holds quota.
func mayGiveBack(w *kueue.Workload) bool {
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	return isTrue(w.Status.Conditions, kueue.WorkloadEvicted) || isTrue(w.Status.Conditions, kueue.WorkloadFinished) ||
		reserved != nil && reserved.Reason == kueue.WorkloadOnHold || quotaworkload.IsBarred(w)
}

// usageOf returns the charge of an admission, without pods whose quota has been reclaimed, in thousandths. Kueue's manager releases the quota of
// a quota Workload when spec.active is false, before its status reports it and before its pods have ended.
func (h *holder) usageOf(w *kueue.Workload) ledger.Sum {
	if h.isOfKueue && !ptr.Deref(w.Spec.Active, true) {
		return nil
	}
	usage := ledger.Sum{}
	usage.Add(w)
	return usage
}

func (a *Auditor) report(now moment, h *holder, what string) {
	a.found = append(a.found, fmt.Sprintf("at %d (%s), %s %s", now.latest, time.Now().Format(time.RFC3339Nano), h.name, what))
}

// sum counts the pods of all pod sets.
func (s *slots) sum() int {
	n := int64(0)
	for _, charged := range s.charged {
		n += charged[corev1.ResourcePods] / 1000
	}
	return int(n)
}
