package upgrade_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// list returns the objects of a kind in a namespace.
func list[L client.ObjectList](ctx context.Context, g Gomega, into L, namespace string) L {
	GinkgoHelper()
	g.Expect(current.Admin.List(ctx, into, client.InNamespace(namespace))).To(Succeed())
	return into
}

// counted counts the pods and quota Workloads of a namespace.
func counted(ctx context.Context, g Gomega, namespace string) count {
	GinkgoHelper()
	c := count{}
	for _, pod := range list(ctx, g, &corev1.PodList{}, namespace).Items {
		switch pod.Status.Phase {
		case corev1.PodRunning:
			c.running++
		case corev1.PodPending:
			c.pending++
		case corev1.PodSucceeded:
			c.succeeded++
		case corev1.PodFailed, corev1.PodUnknown:
		}
	}
	workloads := list(ctx, g, &kueue.WorkloadList{}, namespace)
	c.workloads = len(workloads.Items)
	for i := range workloads.Items {
		if quotaworkload.IsTrue(&workloads.Items[i], kueue.WorkloadAdmitted) {
			c.admitted++
		}
		if quotaworkload.IsTrue(&workloads.Items[i], kueue.WorkloadFinished) {
			c.finished++
		}
	}
	return c
}

// states describes all objects of a namespace by their UIDs, as far as an upgrade may not change them.
func states(ctx context.Context, g Gomega, namespace string) map[types.UID]string {
	GinkgoHelper()
	all := map[types.UID]string{}
	note := func(object client.Object, format string, args ...any) {
		all[object.GetUID()] = fmt.Sprintf("%T %s deleted=%t ", object, object.GetName(), object.GetDeletionTimestamp() != nil) + fmt.Sprintf(format, args...)
	}
	for _, js := range list(ctx, g, &jobsetapi.JobSetList{}, namespace).Items {
		note(&js, "suspend=%t restarts=%d %s", ptr.Deref(js.Spec.Suspend, false), js.Status.Restarts, js.Status.TerminalState)
	}
	for _, job := range list(ctx, g, &batchv1.JobList{}, namespace).Items {
		note(&job, "suspend=%t active=%d succeeded=%d failed=%d start=%v", ptr.Deref(job.Spec.Suspend, false), job.Status.Active, job.Status.Succeeded, job.Status.Failed, job.Status.StartTime)
	}
	for _, pod := range list(ctx, g, &corev1.PodList{}, namespace).Items {
		note(&pod, "%s on %q gates=%v", pod.Status.Phase, pod.Spec.NodeName, pod.Spec.SchedulingGates)
	}
	for _, w := range list(ctx, g, &kueue.WorkloadList{}, namespace).Items {
		note(&w, "reserved=%t admitted=%t finished=%t evicted=%t requeues=%v", quotaworkload.IsTrue(&w, kueue.WorkloadQuotaReserved), quotaworkload.IsTrue(&w, kueue.WorkloadAdmitted),
			quotaworkload.IsTrue(&w, kueue.WorkloadFinished), quotaworkload.IsTrue(&w, kueue.WorkloadEvicted), w.Status.RequeueState)
	}
	return all
}

// expectNoEviction checks that no Event reports that anything was evicted, queued again or refused.
func expectNoEviction(ctx context.Context) {
	GinkgoHelper()
	for _, namespace := range []string{team, guests} {
		for _, event := range list(ctx, Default, &eventsv1.EventList{}, namespace).Items {
			Expect(event.Reason).NotTo(MatchRegexp("Evicted|Preempt|Requeued|Misconfigured|Restart|Recreat|FailedCreate"), "%s %s: %s", event.Regarding.Kind, event.Regarding.Name, event.Note)
		}
	}
}

// end lets the live pods succeed whose names have a prefix.
func end(ctx context.Context, g Gomega, prefix string) {
	for _, pod := range list(ctx, g, &corev1.PodList{}, team).Items {
		runs := pod.Status.Phase == corev1.PodRunning || len(pod.Status.InitContainerStatuses) > 0 && pod.Status.InitContainerStatuses[0].State.Running != nil
		if runs && strings.HasPrefix(pod.Name, prefix) && pod.Status.Phase != corev1.PodSucceeded {
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(client.IgnoreNotFound(current.Admin.Status().Update(ctx, &pod))).To(Succeed())
		}
	}
}

// expectEnd lets all that have one of these prefixes end, one stage after the other.
func expectEnd(ctx context.Context, prefixes ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var open []string
		for _, prefix := range prefixes {
			end(ctx, g, prefix)
			open = append(open, unfinished(ctx, g, team, prefix)...)
		}
		g.Expect(open).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// unfinished returns the JobSets and Jobs of a namespace, with a prefix of their names, that have not completed.
func unfinished(ctx context.Context, g Gomega, namespace, prefix string) []string {
	GinkgoHelper()
	var names []string
	for _, js := range list(ctx, g, &jobsetapi.JobSetList{}, namespace).Items {
		g.Expect(js.Status.Restarts).To(BeZero(), js.Name)
		if js.Status.TerminalState != string(jobset.JobSetCompleted) {
			names = append(names, js.Name)
		}
	}
	for _, job := range list(ctx, g, &batchv1.JobList{}, namespace).Items {
		if job.Status.CompletionTime == nil && job.Labels[jobset.JobSetNameKey] == "" {
			names = append(names, job.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// removeAll deletes all JobSets, Jobs and Deployments of a namespace, and waits until nothing of them is left.
func removeAll(ctx context.Context, namespace string) {
	GinkgoHelper()
	for _, object := range []client.Object{&jobsetapi.JobSet{}, &batchv1.Job{}, &appsv1.Deployment{}} {
		Expect(current.Admin.DeleteAllOf(ctx, object, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	}
	Eventually(func(g Gomega) { g.Expect(states(ctx, g, namespace)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
}
