package groupstart

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// maxJobs is how many Jobs a group may have: their signals must fit into a ConfigMap.
const maxJobs = 20_000

// actions are the writes of one reconcile.
type actions struct {
	// configMap is the ConfigMap of the group to write, or nil if it is up to date. It has no token if there was none.
	configMap *corev1.ConfigMap
	// releases is true if configMap lets the group start, and waits if pods of the group still wait.
	releases, waits bool
	// condition is the condition of the JobSet.
	condition metav1.Condition
	// retries is true if the problem may be fixed without an event of a watch, so that it has to be looked at again.
	retries bool
}

// desired computes what to write from the snapshot. It does no I/O.
func desired(s *snapshot) *actions {
	w := &actions{waits: !s.groupCounts.since.IsZero()}
	reason, message := w.decide(s)
	w.condition = jobsetstatus.Group(s.jobSet, reason, jobsetstatus.GroupField(s.jobSet, apis.GroupStartAnnotation)+": "+message)
	return w
}

func (w *actions) decide(s *snapshot) (reason, message string) {
	// Pods that already wait, because group start was turned off afterwards, still have to be released.
	if !s.injected && !s.groupCounts.waits {
		return jobsetstatus.GroupNotConfigured, "main containers do not wait for each other, because groupStartImage is empty in the parameters of the admission policies; ask an administrator to set it"
	}
	if why := problemOf(s.jobSet); why != "" {
		return jobsetstatus.GroupMisconfigured, why
	}
	if len(s.groupCounts.signals) > maxJobs {
		return jobsetstatus.GroupMisconfigured, fmt.Sprintf("the group has %d Jobs, but at most %d are possible; use fewer Jobs with more pods each", len(s.groupCounts.signals), maxJobs)
	}
	if s.isLeftover() {
		return jobsetstatus.GroupWaiting, fmt.Sprintf("main containers wait until ConfigMap %q of a deleted JobSet of the same name has been deleted", s.configMap.Name)
	}
	if s.configMap != nil && !metav1.IsControlledBy(s.configMap, s.jobSet) {
		w.retries = true
		return jobsetstatus.GroupOfUser, fmt.Sprintf("the group cannot start, because Tranche did not create ConfigMap %q and does not overwrite it:"+
			" rename or delete the ConfigMap, or rename the JobSet", s.configMap.Name)
	}
	notice := w.post(s)
	w.waits = w.waits && !areReleased(&notice, s.groupCounts.pending)
	return s.state(&notice)
}

// refuse reports that the ConfigMap cannot be written, so the pods that it would have released still wait. The cause is a quota for
// ConfigMaps, a policy, or a ConfigMap that its user has made immutable: a user or an administrator must fix it.
func (w *actions) refuse(s *snapshot, err error) {
	w.condition, w.retries = jobsetstatus.Group(s.jobSet, jobsetstatus.GroupNotWritten, err.Error()), true
	w.waits = !s.groupCounts.since.IsZero()
}

// isLeftover reports whether the ConfigMap is about to be deleted because its JobSet was deleted. A watch reports the deletion.
func (s *snapshot) isLeftover() bool {
	if s.configMap == nil {
		return false
	}
	owner := metav1.GetControllerOf(s.configMap)
	return owner != nil && owner.Kind == "JobSet" && owner.Name == s.jobSet.Name && owner.UID != s.jobSet.UID
}

// post computes the ConfigMap of the group, and returns its notice. A released signal is not taken back: it applies only to these pods. The
// file started applies to no pods in particular, so it is removed as soon as a Job of the group is held or created again.
func (w *actions) post(s *snapshot) barrier.Notice {
	notice := barrier.Notice{}
	if s.configMap != nil {
		notice = barrier.ReadNotice(func(key string) string { return s.configMap.Data[key] })
	}
	notice.Endpoint, notice.Pods = s.endpoint, s.groupCounts.pods
	if s.groupCounts.isWhole() && len(s.groupCounts.signals) > 0 && !areReleased(&notice, s.groupCounts.signals) {
		notice.Released, w.releases = s.groupCounts.signals, true
	}
	notice.HasStarted = s.groupCounts.complete && areReleased(&notice, s.groupCounts.pending)
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.jobSet.Namespace, Name: barrier.ConfigMapName(s.jobSet.Name),
			Labels:          map[string]string{apis.JobSetLabel: s.jobSet.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.jobSet, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Data: notice.Data(),
	}
	if notice.Token == "" || !isUpToDate(s.configMap, configMap) {
		w.configMap = configMap
	}
	return notice
}

// isUpToDate reports whether a ConfigMap is up to date.
func isUpToDate(existing, desired *corev1.ConfigMap) bool {
	return existing != nil && existing.Labels[apis.JobSetLabel] == desired.Labels[apis.JobSetLabel] && equality.Semantic.DeepEqual(existing.Data, desired.Data)
}

// areReleased reports whether the pods that wait for the signals may all start.
func areReleased(notice *barrier.Notice, signals []string) bool {
	return !slices.ContainsFunc(signals, func(signal string) bool { return !notice.Releases(signal) })
}

// state returns the reason and message for the group of the JobSet. They stay the same until the state changes.
func (s *snapshot) state(notice *barrier.Notice) (reason, message string) {
	switch t := &s.groupCounts; {
	case t.unaware != "":
		return jobsetstatus.GroupNotInjected, fmt.Sprintf("the pods of Job %q do not wait for the others, because the admission policy tranche-group-jobs was not"+
			" installed when the Job was created; delete the JobSet and submit it again", t.unaware)
	case notice.HasStarted:
		return jobsetstatus.GroupReleased, fmt.Sprintf("all %d pods of the group had started", t.pods)
	case t.gaveUp || t.complete && s.hasTimedOut():
		return jobsetstatus.GroupTimedOut, fmt.Sprintf("a pod timed out waiting for all %d pods of the group to start; its termination message contains how many had started",
			t.pods)
	default:
		return jobsetstatus.GroupWaiting, fmt.Sprintf("main containers wait until all %d pods of the group have started", t.pods)
	}
}

// hasTimedOut reports whether the JobSet already reports that its group has timed out. It keeps reporting that while the pod is gone and
// its Job creates another.
func (s *snapshot) hasTimedOut() bool {
	reported := apimeta.FindStatusCondition(s.jobSet.Status.Conditions, jobsetstatus.GroupScheduling)
	return reported != nil && reported.Reason == jobsetstatus.GroupTimedOut
}
