package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A life is one pod that needs quota, from when it may run to its end.
type life struct {
	name string
	// jobSet and replicatedJob are set for a pod of a JobSet, and for one of a Job: its UID, and the pod set of a queued Job.
	jobSet, replicatedJob string
	// payer and podSet are set for a pod of a gang of pods: the quota Workload under which it was ungated.
	payer  types.UID
	podSet string
	// group is set for a pod of a group that Kueue's manager admits: its quota Workload has the name of the group.
	group string
	span  span

	// account is what pays for the pod, and ungated when it had no scheduling gate, or 0.
	account ledger.Account
	ungated uint64
	// job is the UID of its Job, or empty.
	job types.UID
	// pod is its last state.
	pod *corev1.Pod
}

// Ignore makes the auditor ignore a pod from now on: an administrator is about to do what no tenant may do.
func (a *Auditor) Ignore(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ignored[pod.UID] = true
	delete(a.pods, pod.UID)
	delete(a.members, pod.UID)
}

func (a *Auditor) seePod(pod *corev1.Pod, now moment, what watch.EventType) {
	if a.ignored[pod.UID] {
		return
	}
	hasEnded := what == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	l := a.pods[pod.UID]
	if l == nil {
		if l = newLife(pod, now); l != nil {
			a.pods[pod.UID] = l
		}
	}
	if l != nil {
		l.pod, pod.ManagedFields = pod, nil
		if l.ungated == 0 && len(pod.Spec.SchedulingGates) == 0 {
			l.ungated = now.latest
		}
	}
	if l != nil && hasEnded && l.span.to == 0 {
		l.span.to = now.earliest
	}
	a.seeMember(pod, now)
	if m := a.members[pod.UID]; m != nil && hasEnded {
		m.succeeded = m.succeeded || pod.Status.Phase == corev1.PodSucceeded
		m.end(now)
	}
}

// newLife returns the life of a pod, or nil if it needs no quota: it belongs to no JobSet and no gang in a queue, or it is still gated.
func newLife(pod *corev1.Pod, now moment) *life {
	l := &life{name: pod.Namespace + "/" + pod.Name, span: span{from: now.latest}}
	l.account, _ = ledger.AccountOf(pod)
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		l.job = owner.UID
	}
	switch {
	case isOfJobSet(pod):
		l.jobSet, l.replicatedJob = pod.Labels[jobset.JobSetUIDKey], pod.Labels[jobset.ReplicatedJobNameKey]
	case isOfGang(pod) && podgroup.IsGated(pod):
		return nil // also if a Job has created it
	case isOfGang(pod) && pod.Labels[apis.KueueManagedKey] != "":
		l.group = pod.Namespace + "/" + pod.Labels[apis.PodGroupNameLabel]
	case isOfGang(pod):
		admission, podSet, _ := strings.Cut(pod.Annotations[apis.AdmissionAnnotation], "/")
		uid, _, _ := strings.Cut(admission, ".")
		l.payer, l.podSet = types.UID(uid), podSet
	case isOfJob(pod):
		l.jobSet, l.replicatedJob = pod.Labels[batchv1.ControllerUidLabel], string(kueue.DefaultPodSetName)
	default:
		return nil
	}
	return l
}

// isOfJob reports whether the Job controller has created a pod. The Job may be a queued one.
func isOfJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && string(owner.UID) == pod.Labels[batchv1.ControllerUidLabel]
}

// isOfJobSet reports whether a pod really belongs to a JobSet: the Job controller labels the pods that it creates with the name of their
// Job.
func isOfJobSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Labels[jobset.JobSetUIDKey] != "" && owner != nil && owner.Kind == "Job" && owner.Name == pod.Labels[batchv1.JobNameLabel]
}

// isOfGang reports whether a pod belongs to a gang of pods that needs quota: it names a queue and a gang.
func isOfGang(pod *corev1.Pod) bool {
	_, hasGang := podgroup.RefOf(pod)
	return podgroup.IsMember(pod) || hasGang && pod.Labels[apis.QueueLabel] != ""
}

// strays returns the pods that lived while no quota Workload paid for them.
func (a *Auditor) strays() []string {
	byOwner := a.byOwner()
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		switch l := a.pods[uid]; {
		case a.isPaid(l, byOwner):
		case l.group != "":
			found = append(found, fmt.Sprintf("I2: pod %s of group %s lived ungated from %d to %d without admitted quota", l.name, l.group, l.span.from, l.span.to))
		case l.jobSet == "":
			found = append(found, fmt.Sprintf("I2: pod %s of a gang lived ungated from %d to %d without admitted quota", l.name, l.span.from, l.span.to))
		default:
			found = append(found, fmt.Sprintf("I2: pod %s lived from %d to %d without admitted quota of its stage or Job, which has %s", l.name, l.span.from, l.span.to, describe(byOwner[l.jobSet])))
		}
	}
	return found
}

// describe lists when quota Workloads held quota.
func describe(holders []*holder) string {
	texts := []string{"no quota Workload"}
	for i, h := range holders {
		texts = append(texts[:i], h.name)
		for _, held := range h.held {
			texts[i] += fmt.Sprintf(" from %d, admitted at %d, to %d", held.from, held.admitted, held.to)
		}
	}
	return strings.Join(texts, ", ")
}

// byOwner returns the quota Workloads of each JobSet and Job.
func (a *Auditor) byOwner() map[string][]*holder {
	all := map[string][]*holder{}
	for _, h := range a.holders {
		all[h.jobSet] = append(all[h.jobSet], h)
	}
	return all
}

// isPaid reports whether a quota Workload paid for a pod for as long as it lived, or none has to.
func (a *Auditor) isPaid(l *life, byOwner map[string][]*holder) bool {
	switch {
	case a.isUnwatched(l):
		return true
	case l.group != "":
		return a.paysGroup(l)
	case l.jobSet == "":
		h := a.holders[l.payer]
		return h != nil && h.holdingOf(l) != nil
	}
	holders, queued := byOwner[l.jobSet]
	return !queued && !a.held[l.job] || slices.ContainsFunc(holders, func(h *holder) bool { return h.pays(l) })
}

// isUnwatched reports whether a pod lived only while quota Workloads were not watched: what was held then and no longer is, was never seen.
func (a *Auditor) isUnwatched(l *life) bool {
	return slices.ContainsFunc(a.gaps, func(gap span) bool { return gap.covers(l.span) })
}

// paysGroup reports whether the quota Workload of a group of pods that Kueue's manager admits pays for a pod.
func (a *Auditor) paysGroup(l *life) bool {
	for _, h := range a.holders {
		if h.name == l.group && h.holdingOf(l) != nil {
			return true
		}
	}
	return false
}

// pays reports whether a quota Workload of a stage or a Job pays for a pod. When Kueue's manager evicts a Job, it releases the quota as soon as the status of
// the Job counts no active pod, also if the Job controller has just begun to create them: then it is enough that the Job was admitted before.
func (h *holder) pays(l *life) bool {
	return slices.Contains(h.podSets, l.replicatedJob) && (h.holdingOf(l) != nil ||
		h.isOfKueueJob && slices.ContainsFunc(h.held, func(held *holding) bool { return held.isAdmittedBefore(l) }))
}

// holdingOf returns the holding of quota in which a pod lived, and which was Admitted before it did. It is nil if there is none.
func (h *holder) holdingOf(l *life) *holding {
	for _, held := range h.held {
		if held.covers(l.span) && held.isAdmittedBefore(l) {
			return held
		}
	}
	return nil
}

func (held *holding) isAdmittedBefore(l *life) bool {
	return held.admitted != 0 && held.admitted <= l.span.from
}
