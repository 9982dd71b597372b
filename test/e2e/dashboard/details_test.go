package dashboard_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/sample"
)

// openTab follows the link of a tab.
func openTab(ctx context.Context, title string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var isThere bool
		g.Expect(window.Run(ctx, `const tab = [...document.querySelectorAll("nav.tabs a")].find((a) => a.innerText === "`+title+`"); tab?.click(); return !!tab`, &isThere)).To(Succeed())
		g.Expect(isThere).To(BeTrue(), "a tab %s", title)
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The tabs of a view", func() {
	It("show the settings of queues in words and as YAML", func(ctx SpecContext) {
		open(ctx, address, "queues/vision")
		openTab(ctx, "Settings")
		see(ctx, "spec.preemption.reclaimWithinCohort", "It does not take back quota that other ClusterQueues of its Cohort have borrowed.", "spec.fairSharing.weight")
		openTab(ctx, "YAML")
		see(ctx, "kind: ClusterQueue", "cohortName: research")
		text, err := window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(ContainSubstring("managedFields"))
		Expect(window.Run(ctx, `document.querySelector('main a[href$="localqueues/team-vision/training"]').click()`, nil)).To(Succeed())
		see(ctx, "LocalQueue training", "team-vision/large")
		openTab(ctx, "Settings")
		see(ctx, "The ClusterQueue from which its JobSets and Jobs get quota.")
		openTab(ctx, "YAML")
		see(ctx, "kind: LocalQueue")
	}, SpecTimeout(specTimeout))

	It("show the pods, the Events and the YAML of a JobSet", func(ctx SpecContext) {
		open(ctx, address, "jobsets/team-vision/fine-tune")
		openTab(ctx, "Pods")
		see(ctx, "fine-tune-train-0-0", "2 pods")
		Eventually(func(g Gomega) {
			var cells []string
			g.Expect(window.Run(ctx, `return [...document.querySelectorAll("table.pods tr:has(td.name) td")].slice(1, 5).map((td) => td.innerText)`, &cells)).To(Succeed())
			g.Expect(cells).To(Equal([]string{"train", "Running", "1/1", "0"}), "what runs comes before what has ended")
		}).WithContext(ctx).Should(Succeed())
		seeElement(ctx, "table.pods td.node", nodeOf(ctx, "team-vision", "fine-tune-train-0"))
		Expect(window.Run(ctx, `const s = document.querySelector("main .filters select"); s.value = "download"; s.dispatchEvent(new Event("change"))`, nil)).To(Succeed())
		see(ctx, "1–1 of 1 pod", "fine-tune-download-0-0", "Succeeded")
		openTab(ctx, "Events")
		see(ctx, "StageReleased", "JobSet fine-tune", "SuccessfulCreate", "Job fine-tune-train-0")
		openTab(ctx, "YAML")
		see(ctx, "kind: JobSet", "replicatedJobs:")
		text, err := window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(ContainSubstring("managedFields"))
	}, SpecTimeout(specTimeout))

	It("say why pods of an admitted stage are missing or not ready", func(ctx SpecContext) {
		Expect(env.CreateNamespace(ctx, "team-limits", nil)).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-limits", Name: "training"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "speech"}})).To(Succeed())
		Expect(env.Admin.Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-limits", Name: "no-pods"}, Spec: corev1.ResourceQuotaSpec{Hard: sample.Amounts("pods", "0")},
		})).To(Succeed())
		refused := newJobSet("team-limits", "refused", stage{"train", "1", "", "", ""})
		stuck := newJobSet("team-speech", "stuck", stage{"nowhere", "1", "", "", ""}, stage{"lost", "1", "", "", ""})
		stuck.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "none"}
		stuck.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"},
		}}}
		for _, js := range []client.Object{refused, stuck} {
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, js)).To(Succeed()) }, NodeTimeout(patience))
		}
		// An open page would report that a JobSet is gone.
		DeferCleanup(func(ctx SpecContext) { Expect(window.Open(ctx, "about:blank")).To(Succeed()) }, NodeTimeout(patience))
		open(ctx, address, "jobsets/team-limits/refused")
		see(ctx, "Its pods are not all ready:", "Job refused-train-0 lacks pods: FailedCreate: ", "exceeded quota: no-pods")
		open(ctx, address, "jobsets/team-speech/stuck")
		see(ctx, "pod stuck-nowhere-0-0-", "no node: 0/4 nodes are available: 4 node(s) didn't match", `persistentvolumeclaim "gone" not found`)
		openTab(ctx, "Pods")
		see(ctx, "Why pods are missing or not ready", `persistentvolumeclaim "gone" not found`, "1–2 of 2 pods", "Pending")
	}, SpecTimeout(specTimeout))
})

// nodeOf returns the node of the only pod of a Job.
func nodeOf(ctx context.Context, namespace, job string) string {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	return pods.Items[0].Spec.NodeName
}
