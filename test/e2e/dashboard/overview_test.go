package dashboard_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/sample"
)

// holder returns a quota Workload that holds GPUs since an hour ago, with conditions that are true since then.
func holder(name, gpus string, conditions ...string) *kueue.Workload {
	since := metav1.NewTime(in(-time.Hour))
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: since}, Spec: kueue.WorkloadSpec{QueueName: "q"}}
	w.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"}, ResourceUsage: sample.Amounts(string(gpu), gpus),
	}}}
	for _, name := range append([]string{kueue.WorkloadQuotaReserved}, conditions...) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name, LastTransitionTime: since})
	}
	return w
}

var _ = Describe("The overview", func() {
	It("is the first view of an administrator", func(ctx SpecContext) {
		open(ctx, address, "")
		seeView(ctx, "overview")
		see(ctx, "nvidia.com/gpu a100", " of 48 held: 4", "team-vision/large", "24 nvidia.com/gpu", "WaitingForQuota", "ends at the latest", "live")
		seeElement(ctx, ".users tr td.name", "team-vision")
		var title string
		Expect(window.Run(ctx, "return document.title", &title)).To(Succeed())
		Expect(title).To(Equal("Overview · Tranche"))
		Expect(window.Click(ctx, ".users a")).To(Succeed())
		seeView(ctx, "jobsets?namespace=team-vision")
	}, SpecTimeout(specTimeout))

	It("shows causes, the past, who waits and what comes next, in a narrow window, too", func(ctx SpecContext) {
		long := "a100-with-a-name-that-is-far-longer-than-all-that-a-card-of-a-narrow-window-has-room-for"
		objects := queue("q", func(q *kueue.ClusterQueue) {
			q.Spec.ResourceGroups = []kueue.ResourceGroup{group("a100", gpu, "40"), group(kueue.ResourceFlavorReference(long), "example.com/tpu", "4")}
			q.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "a100", Resources: []kueue.ResourceUsage{{Name: gpu, Total: sample.Amounts("x", "30")["x"]}}}}
			q.Status.FlavorsUsage = []kueue.FlavorUsage{{Name: "a100", Resources: []kueue.ResourceUsage{{Name: gpu, Total: sample.Amounts("x", "24")["x"]}}}}
		})
		ends, preempted, starts := in(20*time.Minute), in(5*time.Minute), in(40*time.Minute)
		running := holder("running", "12", kueue.WorkloadAdmitted, kueue.WorkloadPodsReady)
		running.Spec.MaximumExecutionTimeSeconds = new(int32(ends.Sub(in(-time.Hour)) / time.Second))
		urged := holder("urged", "4", kueue.WorkloadAdmitted, kueue.WorkloadPodsReady, apis.PreemptionPendingCondition)
		urged.Status.Conditions[3].Message = quotaworkload.NoticeMessage(preempted, "0a1b2c3d") + " JobUID: 0a1b2c3d) due to prioritization in the ClusterQueue"
		js, w := waiting("soon", "q", &jobsetstatus.ExpectedStart{Certainty: jobsetstatus.StartBy, By: starts})
		store := server.NewStore()
		store.Use(func(m *dashboard.Model) {
			for _, object := range append(objects, running, urged, holder("starting", "8", kueue.WorkloadAdmitted), holder("checked", "2"), js, w) {
				m.Observe(object)
			}
			m.Sample(in(-90 * time.Minute))
			m.Sample(in(-45 * time.Minute))
		})
		url := serveStore(server.About{IsSynced: true}, store, nil)
		DeferCleanup(func(ctx SpecContext) { Expect(window.Resize(ctx, 1400, 900)).To(Succeed()) }, NodeTimeout(patience))
		for _, width := range []int{420, 1400} {
			Expect(window.Resize(ctx, width, 900)).To(Succeed())
			open(ctx, url, "overview")
			see(
				ctx, "1 Waiting", "30 of 40 held: 16 in use; 8 idle: admitted, pods not all ready; 2 reserved: waiting for AdmissionChecks; 4 reserved: kept for later stages; 10 free",
				"0 of 4 held: 4 free", "26 nvidia.com/gpu", "team/soon stage train", "is expected to start", "ends at the latest", "is preempted",
				"Since "+zoneMinute(ctx, in(-90*time.Minute))+", when this dashboard was started.",
			)
			for i, at := range []time.Time{preempted, ends, starts} {
				seeElement(ctx, fmt.Sprintf(".changes tbody tr:nth-child(%d) time", i+1), zoneMinute(ctx, at))
			}
			var overflow, plots int
			Expect(window.Run(ctx, "return document.documentElement.scrollWidth - innerWidth", &overflow)).To(Succeed())
			Expect(overflow).To(BeZero(), "a window of %d pixels moves sideways", width)
			Expect(window.Run(ctx, `return document.querySelectorAll(".accelerator .plot canvas").length`, &plots)).To(Succeed())
			Expect(plots).To(Equal(2))
			// The resource of a bar is not hidden by the name of its flavor, and no name of a view breaks.
			var isCut, breaks bool
			Expect(window.Run(ctx, `const r = document.querySelector(".accelerator:last-child h3 b").getBoundingClientRect(); return r.right > innerWidth || r.left < 0`, &isCut)).To(Succeed())
			Expect(isCut).To(BeFalse())
			Expect(window.Run(ctx, `return [...document.querySelectorAll("header nav a")].some((a) => a.getClientRects().length > 1)`, &breaks)).To(Succeed())
			Expect(breaks).To(BeFalse())
		}
		take(ctx, "overview.png")
		// The times of messages are local, and UIDs are left out.
		open(ctx, url, "queues/q?list=holding")
		see(ctx, "The pods end at ", "to accommodate a workload due to prioritization")
		text, err := window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(Or(ContainSubstring("0a1b2c3d"), ContainSubstring(preempted.UTC().Format(time.RFC3339))))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The LocalQueues of a researcher", func() {
	It("show what they hold, and the positions of what is pending there", func(ctx SpecContext) {
		open(ctx, address, "localqueues")
		see(ctx, "team-speech", "team-vision")
		url := serve("--kubeconfig", kubeconfigOf(ctx, "mae", "team-vision"))
		open(ctx, url, "localqueues")
		see(ctx, "training", " nvidia.com/gpu", "1–1 of 1 LocalQueue")
		Expect(window.Click(ctx, "tbody td.name a")).To(Succeed())
		seeView(ctx, "localqueues/team-vision/training")
		see(ctx, "LocalQueue training", "holds 4", "team-vision/large", "Position here", "Pending (")
		seeElement(ctx, `tr:has(a[href$="/large"]) td:first-child`, "0")
		Expect(window.Click(ctx, ".tabs a:nth-child(2)")).To(Succeed())
		see(ctx, "team-vision/fine-tune", "40 nvidia.com/gpu of a100")
		text, err := window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(ContainSubstring("team-speech"))
	}, SpecTimeout(specTimeout))
})
