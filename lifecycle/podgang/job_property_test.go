package podgang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A jobLab is a lab in which Jobs create the pods of a gang, count those that succeed, and create no other pods in their place.
type jobLab struct {
	*lab
	// counted has the pods that a Job has counted, and known the Jobs as the manager reads them.
	counted map[types.UID]bool
	latest  []*batchv1.Job
}

// syncJobs lets the manager read the latest Jobs.
func (l *jobLab) syncJobs() { l.jobs = clone(l.latest) }

// podsOf returns the pods of a Job.
func (l *jobLab) podsOf(job *batchv1.Job) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(l.pods), func(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod).UID != job.UID })
}

// runJob does what the Job controller does: it counts pods that have succeeded, lets terminated pods disappear that are being deleted, and creates and
// deletes pods until there are as many as have to succeed.
func (l *jobLab) runJob(job *batchv1.Job) {
	var active []*corev1.Pod
	for _, pod := range l.podsOf(job) {
		switch {
		case podgroup.IsTerminal(pod):
			if pod.Status.Phase == corev1.PodSucceeded && !l.counted[pod.UID] {
				l.counted[pod.UID] = true
				job.Status.Succeeded++
			}
			if pod.DeletionTimestamp != nil {
				l.say("%s %s disappears", pod.UID, pod.Status.Phase)
				l.vanish(pod)
			}
		case pod.DeletionTimestamp == nil:
			active = append(active, pod)
		}
	}
	want := int(max(0, *job.Spec.Completions-job.Status.Succeeded))
	for len(active) > want {
		pod := active[len(active)-1]
		active = active[:len(active)-1]
		l.say("Job %s deletes %s", job.UID, pod.UID)
		l.remove(pod)
	}
	for ; len(active) < want; want-- {
		pod := l.add(1)
		owned([]*corev1.Pod{pod}, job.UID)
		l.stamp(pod)
		l.say("Job %s creates %s", job.UID, pod.UID)
	}
	if isAlone := len(l.podsOf(job)) == len(slices.DeleteFunc(l.podsOf(job), func(pod *corev1.Pod) bool { return !podgroup.IsTerminal(pod) })); isAlone && job.Status.Succeeded >= *job.Spec.Completions {
		l.complete(job)
	}
}

// remove deletes a pod: one that is gated disappears, another one terminates.
func (l *jobLab) remove(pod *corev1.Pod) {
	if podgroup.IsGated(pod) {
		l.vanish(pod)
		return
	}
	pod.DeletionTimestamp = new(metav1.NewTime(l.now))
	l.stamp(pod)
}

// end terminates a pod, which may succeed.
func (l *jobLab) end(t *rapid.T, pod *corev1.Pod) {
	if podgroup.IsGated(pod) || podgroup.IsTerminal(pod) {
		return
	}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
	l.say("%s ends: %s", pod.UID, pod.Status.Phase)
	l.stamp(pod)
}

// TestJobsEnd: whichever pods of a gang succeed when it is evicted, however late the manager reads that, and wherever it is interrupted, the Jobs of the
// gang run to their end.
func TestJobsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]podgroup.Kind{podgroup.Lightweight, podgroup.Kueue, podgroup.Coscheduling}).Draw(t, "kind")
		l := &jobLab{lab: &lab{world: newWorld(t, podgroup.Ref{Kind: kind, Namespace: "ml", Name: "train"})}, counted: map[types.UID]bool{}}
		all := int32(0)
		for i := range rapid.IntRange(1, 2).Draw(t, "Jobs") {
			n := rapid.Int32Range(1, 3).Draw(t, "pods")
			all += n
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("job-", i))}, Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n}}
			job.Spec.Template.Labels = map[string]string{apis.QueueLabel: "main"}
			l.latest = append(l.latest, job)
		}
		switch kind { //nolint:exhaustive // one that starts together, one that may be admitted in parts, one with a PodGroup
		case podgroup.Kueue:
			l.settings[apis.PodGroupTotalCountAnnotation] = fmt.Sprint(all)
		case podgroup.Lightweight:
			l.settings[apis.KoordinatorPrefix+"min-available"] = fmt.Sprint(all)
			l.settings[apis.KoordinatorPrefix+"mode"] = rapid.SampledFrom([]string{"Strict", "NonStrict"}).Draw(t, "mode")
		default:
			l.object = newGroup(t, int(all)).object
		}
		job := func() *batchv1.Job { return rapid.SampledFrom(l.latest).Draw(t, "Job") }
		onPod := func(do func(*corev1.Pod)) {
			if len(l.pods) > 0 {
				do(rapid.SampledFrom(l.pods).Draw(t, "pod"))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"Job":    func(*rapid.T) { l.runJob(job()) },
			"end":    func(t *rapid.T) { onPod(func(pod *corev1.Pod) { l.end(t, pod) }) },
			"delete": func(*rapid.T) { onPod(func(pod *corev1.Pod) { l.say("delete %s", pod.UID); l.remove(pod) }) },
			"start":  func(t *rapid.T) { l.admitEach(t) },
			"evict": func(*rapid.T) {
				for _, x := range l.workloads {
					if quotaworkload.HoldsQuota(x) && !quotaworkload.IsTrue(x, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
						l.say("preempt %s", x.UID)
						l.preempt(x)
						l.stamp(l.live(x))
					}
				}
			},
			"read": func(*rapid.T) { l.syncJobs(); l.syncPods(); l.syncWorkloads() },
			"pass": func(t *rapid.T) {
				l.say("pass")
				l.syncObject()
				l.pass(rapid.SampledFrom([]int{1, 2, 3, 1000}).Draw(t, "most"))
			},
			"wait": func(*rapid.T) { l.now = l.now.Add(time.Minute) },
			"":     func(t *rapid.T) { l.checkPaid(t) },
		})
		l.runToEnd(t)
	})
}

// admitEach admits all quota Workloads that ask for quota.
func (l *jobLab) admitEach(t *rapid.T) {
	for _, x := range slices.Clone(l.workloads) {
		if l.admit(x) {
			l.say("admit %s", x.UID)
			l.stamp(l.live(x))
		}
	}
	l.checkPaid(t)
}

// runToEnd lets the manager and the Jobs go on until all Jobs are complete.
func (l *jobLab) runToEnd(t *rapid.T) {
	const rounds = 30
	for range rounds {
		l.now = l.now.Add(time.Minute)
		for _, job := range l.latest {
			l.runJob(job)
		}
		l.syncJobs()
		l.quiet(t, "to the end")
		l.admitEach(t)
		l.quiet(t, "to the end")
		for _, pod := range l.pods {
			if !podgroup.IsGated(pod) && !podgroup.IsTerminal(pod) {
				pod.Status.Phase = corev1.PodSucceeded
				l.stamp(pod)
			}
		}
	}
	for _, job := range l.latest {
		if job.Status.CompletionTime == nil {
			t.Fatalf("Job %s does not end: pods %s, %s\n%s", job.UID, l.standing(), l.last.Message.Text, strings.Join(l.log, "\n"))
		}
	}
	for _, x := range l.workloads {
		if !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
			t.Fatalf("quota Workload %s does not finish: pods %s, %s\n%s", x.UID, l.standing(), l.last.Message.Text, strings.Join(l.log, "\n"))
		}
	}
}
