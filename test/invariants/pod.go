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
}

func (a *Auditor) seePod(pod *corev1.Pod, now moment, what watch.EventType) {
	hasEnded := what == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	l := a.pods[pod.UID]
	if l == nil {
		if l = newLife(pod, now); l != nil {
			a.pods[pod.UID] = l
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
	switch {
	case isOfJobSet(pod):
		l.jobSet, l.replicatedJob = pod.Labels[jobset.JobSetUIDKey], pod.Labels[jobset.ReplicatedJobNameKey]
	case isOfGang(pod) && !podgroup.IsGated(pod) && pod.Labels[apis.KueueManagedKey] != "":
		l.group = pod.Namespace + "/" + pod.Labels[apis.PodGroupNameLabel]
	case isOfGang(pod) && !podgroup.IsGated(pod):
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
	byJobSet := map[string][]*holder{}
	for _, h := range a.holders {
		byJobSet[h.jobSet] = append(byJobSet[h.jobSet], h)
	}
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		l := a.pods[uid]
		if l.group != "" {
			if !a.paysGroup(l) {
				found = append(found, fmt.Sprintf("I2: pod %s of group %s lived ungated from %d to %d without admitted quota", l.name, l.group, l.span.from, l.span.to))
			}
			continue
		}
		if l.jobSet == "" {
			if h := a.holders[l.payer]; h == nil || h.holdingOf(l) == nil {
				found = append(found, fmt.Sprintf("I2: pod %s of a gang lived ungated from %d to %d without admitted quota", l.name, l.span.from, l.span.to))
			}
			continue
		}
		holders, queued := byJobSet[l.jobSet]
		if !queued || slices.ContainsFunc(holders, func(h *holder) bool { return h.pays(l) }) {
			continue
		}
		found = append(found, fmt.Sprintf("I2: pod %s lived from %d to %d without admitted quota of its stage or Job", l.name, l.span.from, l.span.to))
	}
	return found
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

// overbooked returns the times at which more pods of a gang lived than its quota Workload paid for.
func (a *Auditor) overbooked() []string {
	crews := map[*holding][]*life{}
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		if h := a.holders[a.pods[uid].payer]; h != nil {
			held := h.holdingOf(a.pods[uid])
			crews[held] = append(crews[held], a.pods[uid])
		}
	}
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(a.holders)) {
		for _, held := range a.holders[uid].held {
			if excess := held.overbooked(crews[held]); excess != "" {
				found = append(found, fmt.Sprintf("I2: %s %s", a.holders[uid].name, excess))
			}
		}
	}
	return found
}

// overbooked describes the first moment at which more of these pods lived than the holding pays for. It is empty if there is none.
func (held *holding) overbooked(crew []*life) string {
	moments := map[uint64]struct{}{}
	for _, l := range crew {
		moments[l.span.from] = struct{}{}
	}
	for _, s := range held.slots {
		moments[s.from] = struct{}{}
	}
	for _, at := range slices.Sorted(maps.Keys(moments)) {
		living := map[string]int{}
		for _, l := range crew {
			if l.span.from <= at && (l.span.to == 0 || l.span.to > at) {
				living[l.podSet]++
			}
		}
		for _, podSet := range slices.Sorted(maps.Keys(living)) {
			if most := held.most(podSet, at); living[podSet] > most {
				return fmt.Sprintf("paid at %d for %d pods of pod set %q, and %d lived", at, most, podSet, living[podSet])
			}
		}
	}
	return ""
}

// most returns the number of pods of a pod set that quota was held for at a resource version. Quota that a PodGroup reserves as a sum is
// for all its pods.
func (held *holding) most(podSet string, at uint64) int {
	most := 0
	for i, s := range held.slots {
		if i > 0 && s.from > at {
			break
		}
		most = s.pods[podSet]
		if podSet == apis.ReservedPodSet {
			most = s.sum()
		}
	}
	return most
}

// sum counts the pods of all pod sets.
func (s *slots) sum() int {
	n := 0
	for _, pods := range s.pods {
		n += pods
	}
	return n
}
