package kueue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// shadowUser is who runs tranche shadow: that of the Deployment in config/shadow.
const shadowUser = "system:serviceaccount:" + apis.SystemNamespace + ":tranche-shadow"

var _ = Describe("Shadow", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		removeBeside(ctx)
		integrations := map[string]any{"frameworks": []string{"batch/job", "jobset.x-k8s.io/jobset"}}
		Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{Settings: map[string]any{"integrations": integrations}})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{})).To(Succeed())
		}, NodeTimeout(2*patience))
		Expect(env.Kubectl(ctx, "apply", "-k", filepath.Join(env.Root, "config", "shadow"))).To(Succeed())
		// Its pod does nothing on a fake node: the test runs the binary in its place.
		Expect(env.Kubectl(ctx, "-n", apis.SystemNamespace, "delete", "deployment", "tranche-shadow")).To(Succeed())
	}, NodeTimeout(2*patience))

	It("measures what JobSets hold that Kueue admits, and writes nothing", func(ctx SpecContext) {
		tenant(ctx, "shadow", 8)
		out, stop := watchShadow(ctx)
		// Of 8 GPUs each holds 5 as a whole, so that Kueue lets the second wait for the first.
		jobSets := []*jobsetapi.JobSet{pipeline("first"), pipeline("second")}
		for _, js := range jobSets {
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
		}
		for _, js := range jobSets {
			Eventually(read(ctx, js)).WithContext(ctx).Should(HaveField("Status.TerminalState", string(jobset.JobSetCompleted)))
		}
		Eventually(func(g Gomega) {
			var workloads kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace("shadow"))).To(Succeed())
			g.Expect(workloads.Items).To(HaveLen(2))
			g.Expect(workloads.Items).To(HaveEach(HaveField("Status.Conditions", ContainElement(HaveField("Type", kueue.WorkloadFinished)))))
		}).WithContext(ctx).Should(Succeed())
		stop()

		var r shadow.Report
		Expect(json.Unmarshal(out.Bytes(), &r)).To(Succeed())
		Expect(r.JobSets).To(Equal(shadow.Counts{Total: 2, Staged: 2, Finished: 2}))
		Expect(r.Gaps).To(BeEmpty())
		Expect(r.LeftOut).To(BeEmpty())
		Expect(r.InactiveQueues).NotTo(HaveKey("shadow"))
		Expect(r.Resources).To(ConsistOf(HaveField("Name", gpu)))
		gpus := r.Resources[0]
		first, second := holdingOf(ctx, "first"), holdingOf(ctx, "second")
		Expect(gpus.Held).To(Equal(first.gpuSeconds()+second.gpuSeconds()), "what was measured is what Workloads held")
		Expect(gpus.Idle[shadow.LaterStage]).To(BeNumerically(">=", 2*4*2), "4 GPUs for 3 seconds twice, in times of whole seconds")
		Expect(r.Error.Compared).To(Equal(2))
		// The replay does not know how long Kueue takes, nor other controllers between the Jobs of the first one.
		latency := first.reserved.Sub(first.created) + second.reserved.Sub(first.finished) + first.finished.Sub(first.reserved) - first.running
		Expect(r.Error.MaxSeconds).To(BeNumerically("<=", latency.Seconds()+2), "the replay as a whole starts JobSets when Kueue did, but for the time that controllers take")
		Expect(r.Starts.Earlier).To(Equal(1), "the second one need not wait")
		Expect(r.Differences).To(ContainElement(HaveField("Name", Or(Equal("first"), Equal("second")))))

		verbs := requestsOf(shadowUser)
		AddReportEntry("requests of tranche shadow", fmt.Sprint(verbs))
		for _, verb := range []string{"get", "list", "watch"} {
			Expect(verbs).To(HaveKey(verb))
			delete(verbs, verb)
		}
		Expect(verbs).To(BeEmpty(), "it writes nothing")
	}, NodeTimeout(2*patience))

	It("reports in advance what happens when Tranche admits the same JobSets in a tree that was taken over", expectForetold, NodeTimeout(4*patience))
})

// pipeline returns a JobSet that prepares on 1 GPU for 3 seconds, and then trains on 4.
func pipeline(name string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shadow", Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{
		sample.ReplicatedJob("prepare", 1, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "3"}),
		sample.ReplicatedJob("train", 4, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "2"}),
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
	return js
}

// watchShadow runs tranche shadow as its own user, and returns its output once stop has interrupted it.
func watchShadow(ctx context.Context) (out *bytes.Buffer, stop func()) {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(env.Plane.Kubeconfig(kubeconfig, shadowUser)).To(Succeed())
	out = &bytes.Buffer{}
	warnings := gbytes.NewBuffer()
	cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "shadow", "-o", "json", "--kubeconfig", kubeconfig)
	cmd.Stdout, cmd.Stderr = out, warnings
	Expect(cmd.Start()).To(Succeed())
	Eventually(warnings).WithContext(ctx).Should(gbytes.Say("watching until interrupted\n"))
	return out, func() {
		GinkgoHelper()
		Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed())
	}
}

// A holding is when a pipeline held the quota that Kueue admitted it with, as its objects say. Its Jobs have been running for so long in sum.
type holding struct {
	created, reserved, prepared, trained, finished time.Time
	running                                        time.Duration
}

func holdingOf(ctx context.Context, name string) holding {
	GinkgoHelper()
	var workloads kueue.WorkloadList
	Expect(env.Admin.List(ctx, &workloads, client.InNamespace("shadow"))).To(Succeed())
	var w *kueue.Workload
	for i := range workloads.Items {
		if workloads.Items[i].OwnerReferences[0].Name == name {
			w = &workloads.Items[i]
		}
	}
	Expect(w).NotTo(BeNil())
	since := func(name string) time.Time {
		return meta.FindStatusCondition(w.Status.Conditions, name).LastTransitionTime.Time
	}
	h := holding{created: w.CreationTimestamp.Time, reserved: since(kueue.WorkloadQuotaReserved), finished: since(kueue.WorkloadFinished)}
	for replicatedJob, completed := range map[string]*time.Time{"prepare": &h.prepared, "train": &h.trained} {
		job := &batchv1.Job{}
		Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: "shadow", Name: name + "-" + replicatedJob + "-0"}, job)).To(Succeed())
		*completed = job.Status.CompletionTime.Time
		h.running += job.Status.CompletionTime.Sub(job.Status.StartTime.Time)
	}
	return h
}

// gpuSeconds is what it held. Kueue releases what the pods of a Job held when the Job is complete (reclaimable pods).
func (h holding) gpuSeconds() float64 {
	return h.prepared.Sub(h.reserved).Seconds() + 4*h.trained.Sub(h.reserved).Seconds()
}
