package e2e_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// This file has the helpers that the specs about the lifecycle of JobSets share.

// get reads a JobSet of the team.
func (t team) get(ctx context.Context, g Gomega, name string) *jobsetapi.JobSet {
	var js jobsetapi.JobSet
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &js)).To(Succeed())
	return &js
}

// podsOf returns the pods of one ReplicatedJob of one JobSet.
func (t team) podsOf(ctx context.Context, g Gomega, jobSet, replicatedJob string) []corev1.Pod {
	var mine []corev1.Pod
	for _, pod := range t.pods(ctx, g, replicatedJob) {
		if pod.Labels[jobset.JobSetNameKey] == jobSet {
			mine = append(mine, pod)
		}
	}
	return mine
}

// endOne lets one running pod end in this way.
func (t team) endOne(ctx context.Context, jobSet, replicatedJob string, phase corev1.PodPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.podsOf(ctx, g, jobSet, replicatedJob) {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				pod.Status.Phase = phase
				g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
				return
			}
		}
		g.Expect(false).To(BeTrue(), "no pod of %s runs", replicatedJob)
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// uids of the quota Workloads of a JobSet, by stage.
func (t team) uids(ctx context.Context, jobSet string, stages ...string) map[string]types.UID {
	all := map[string]types.UID{}
	for _, stage := range stages {
		all[stage] = t.workload(ctx, Default, jobSet, stage).UID
	}
	return all
}

// expectReserved waits until the team's ClusterQueue reports these GPUs as reserved.
func (t team) expectReserved(ctx context.Context, gpus string) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal(gpus)) }).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectRestarts waits until a JobSet has been restarted so many times.
func (t team) expectRestarts(ctx context.Context, name string, restarts int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.get(ctx, g, name).Status.Restarts).To(Equal(restarts)) }).WithContext(ctx).
		Should(Succeed(), func() string { return t.describe(ctx) })
}

// told counts the Events of a JobSet with this note.
func (t team) told(ctx context.Context, g Gomega, jobSet, reason string) map[string]int {
	var list eventsv1.EventList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
	counts := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Name != jobSet || e.Reason != reason {
			continue
		}
		counts[e.Note]++
		if e.Series != nil {
			counts[e.Note] += int(e.Series.Count) - 1
		}
	}
	return counts
}

// drive makes all running pods of these JobSets succeed, until all of the JobSets are completed.
func (t team) drive(ctx context.Context, jobSets ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.pods(ctx, g, "") {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				pod.Status.Phase = corev1.PodSucceeded
				g.Expect(client.IgnoreNotFound(env.Admin.Status().Update(ctx, &pod))).To(Succeed())
			}
		}
		for _, name := range jobSets {
			g.Expect(t.get(ctx, g, name).Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)), name)
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// jobUIDs are the UIDs of the team's Jobs, by name.
func (t team) jobUIDs(ctx context.Context, g Gomega) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, job := range t.jobs(ctx, g, "") {
		uids[job.Name] = job.UID
	}
	return uids
}

// setReady makes the running pods of a ReplicatedJob ready, or not.
func (t team) setReady(ctx context.Context, jobSet, replicatedJob string, ready corev1.ConditionStatus) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.podsOf(ctx, g, jobSet, replicatedJob) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
			g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed())
}

// reachAttempt does the work of the agents of an in-place restart: every pod reports that it has reached the attempt, until the JobSet
// controller observes that.
func (t team) reachAttempt(ctx context.Context, jobSet string, attempt int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.podsOf(ctx, g, jobSet, "") {
			if pod.Status.Phase == corev1.PodRunning && pod.Annotations[jobset.InPlaceRestartAttemptKey] != fmt.Sprint(attempt) {
				pod.Annotations[jobset.InPlaceRestartAttemptKey] = fmt.Sprint(attempt)
				g.Expect(env.Admin.Update(ctx, &pod)).To(Succeed())
			}
		}
		js := t.get(ctx, g, jobSet)
		g.Expect(js.Status.TerminalState).To(BeEmpty())
		g.Expect(js.Status.CurrentInPlaceRestartAttempt).To(HaveValue(Equal(attempt)))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// isFinished reports whether the stage of a quota Workload has finished.
func isFinished(w *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
}
