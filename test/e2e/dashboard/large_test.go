package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/browser"
)

const (
	largeQueues, largeCohorts = 1000, 20
	// largeLine is the number of quota Workloads in each ClusterQueue.
	largeLine = 100
	// proposals is the number of namespaces that a filter proposes at most.
	proposals = 50
)

// writeLarge writes the snapshot of a large cluster, and returns its directory. Each ClusterQueue has a namespace with a LocalQueue of its own. The last
// of its quota Workloads is that of a JobSet.
func writeLarge() string {
	GinkgoHelper()
	s := &snapshot.Snapshot{TakenAt: time.Now().UTC().Truncate(time.Second)}
	created := metav1.NewTime(s.TakenAt.Add(-time.Hour))
	podSets := newBacklog(0).Spec.PodSets
	for i := range largeCohorts {
		s.Cohorts = append(s.Cohorts, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cohort-%02d", i)}})
	}
	for i := range largeQueues {
		name, namespace := fmt.Sprintf("cq-%04d", i), fmt.Sprintf("team-%04d", i)
		s.ClusterQueues = append(s.ClusterQueues, &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: kueue.ClusterQueueSpec{
				CohortName:     kueue.CohortReference(s.Cohorts[i%largeCohorts].Name),
				ResourceGroups: []kueue.ResourceGroup{group("cpu", corev1.ResourceCPU, "64"), group("a100", gpu, "8")},
			},
			Status: kueue.ClusterQueueStatus{PendingWorkloads: largeLine},
		})
		s.LocalQueues = append(s.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "training"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
		js := newJobSet(namespace, "fine-tune", stage{"train", "1", "16", "", ""})
		js.UID, js.CreationTimestamp = types.UID(namespace), created
		s.JobSets = append(s.JobSets, js)
		for k := range largeLine - 1 {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: backlogName(k), UID: types.UID(fmt.Sprint(i, "-", k)), CreationTimestamp: created}}
			w.Spec.QueueName, w.Spec.PodSets, w.Spec.Priority = "training", podSets, new(int32(k))
			s.Workloads = append(s.Workloads, w)
		}
		w := workloadAt(js, "train", nil)
		w.UID, w.Spec.QueueName = types.UID(namespace+"-train"), "training"
		s.Workloads = append(s.Workloads, w)
	}
	dir := GinkgoT().TempDir()
	Expect(s.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }, nil)).To(Succeed())
	return dir
}

// focusOn lets an element of the page have the focus, as Tab does.
func focusOn(ctx context.Context, selector string) {
	GinkgoHelper()
	Expect(window.Run(ctx, fmt.Sprintf("document.querySelector(%q).focus()", selector), nil)).To(Succeed())
}

// seeBounded expects that the page shows so many rows of a list, and that no answer below a path was larger than a page.
func seeBounded(ctx context.Context, path string, rows int) {
	GinkgoHelper()
	count, largest := fetched(ctx, Default, path)
	Expect(count).To(BeNumerically(">", 0))
	Expect(largest).To(BeNumerically("<", pageBytes), "bytes of an answer of %s", path)
	var shown, elements int
	Expect(window.Run(ctx, `return document.querySelectorAll("main .scroll tbody tr").length`, &shown)).To(Succeed())
	Expect(shown).To(Equal(rows))
	Expect(window.Run(ctx, `return document.querySelectorAll("*").length`, &elements)).To(Succeed())
	Expect(elements).To(BeNumerically("<", 3000), "elements of the page")
}

var _ = Describe("A snapshot of a thousand ClusterQueues with a hundred thousand quota Workloads", Ordered, func() {
	var url string
	BeforeAll(func() { url = serve("--snapshot", writeLarge()) })

	It("shows the tree of queues in pages", func(ctx SpecContext) {
		const path = "/api/v1/queues"
		open(ctx, url, "queues")
		see(ctx, "1–50 of 1,020 rows", "cohort-00", "Cohort, 50 ClusterQueues", "5,000", "cq-0000")
		seeBounded(ctx, path, pageRows)
		focusOn(ctx, "#next-page")
		Expect(window.Type(ctx, browser.Enter)).To(Succeed())
		see(ctx, "51–100 of 1,020 rows", "cohort-01")
		seeBounded(ctx, path, pageRows)
		open(ctx, url, "queues?offset=1000")
		see(ctx, "1,001–1,020 of 1,020 rows", "cq-0999")
		seeBounded(ctx, path, 20)
		open(ctx, url, "queues")
		see(ctx, "1–50 of 1,020 rows")
		Expect(window.Click(ctx, ".queues .cohort a")).To(Succeed())
		see(ctx, "Queues below cohort-00", "1–50 of 51 rows")
	}, SpecTimeout(specTimeout))

	It("filters the tree by keys alone", func(ctx SpecContext) {
		open(ctx, url, "queues")
		see(ctx, "1–50 of 1,020 rows")
		focusOn(ctx, "main .filters input")
		Expect(window.Type(ctx, "cq-09")).To(Succeed())
		see(ctx, "1–50 of 100 rows", "cq-0900")
		Expect(window.Type(ctx, "99")).To(Succeed())
		see(ctx, "1–1 of 1 row", "cq-0999")
		open(ctx, url, "queues?state=pending")
		see(ctx, "1–50 of 1,020 rows")
		open(ctx, url, "queues?state=borrowing")
		see(ctx, "Nothing matches the filters")
	}, SpecTimeout(specTimeout))

	It("proposes the namespaces that match", func(ctx SpecContext) {
		proposed := func(g Gomega) (names []string) {
			g.Expect(window.Run(ctx, `return [...document.querySelectorAll("#namespaces option")].map((o) => o.value)`, &names)).To(Succeed())
			return names
		}
		open(ctx, url, "queues")
		see(ctx, "1–50 of 1,020 rows")
		focusOn(ctx, `input[list="namespaces"]`)
		Eventually(proposed).WithContext(ctx).Should(And(HaveLen(proposals), ContainElement("team-0000")))
		Expect(window.Type(ctx, "team-099")).To(Succeed())
		Eventually(proposed).WithContext(ctx).Should(And(HaveLen(10), ContainElement("team-0999")))
		Expect(window.Type(ctx, "9")).To(Succeed())
		see(ctx, "1–1 of 1 row", "cq-0999")
		_, largest := fetched(ctx, Default, "/api/v1/namespaces")
		Expect(largest).To(And(BeNumerically(">", 0), BeNumerically("<", pageBytes)))
	}, SpecTimeout(specTimeout))

	It("finds a line and a JobSet by keys alone", func(ctx SpecContext) {
		open(ctx, url, "queues")
		see(ctx, "1–50 of 1,020 rows")
		Expect(window.Type(ctx, "/cq-0777")).To(Succeed())
		see(ctx, "ClusterQueue cq-0777")
		Expect(window.Type(ctx, browser.Enter)).To(Succeed())
		see(ctx, "in Cohort cohort-17", "1–50 of 100 quota Workloads", "team-0777/backlog-00098")
		seeBounded(ctx, "/api/v1/queues/cq-0777/workloads", pageRows)
		open(ctx, url, "queues/cq-0777?offset=50")
		see(ctx, "51–100 of 100 quota Workloads", "team-0777/fine-tune stage train")
		open(ctx, url, "jobsets")
		see(ctx, "1–50 of 1,000 JobSets")
		seeBounded(ctx, "/api/v1/jobsets", pageRows)
		open(ctx, url, "jobsets?namespace=team-0777")
		see(ctx, "1–1 of 1 JobSet", "cq-0777")
	}, SpecTimeout(specTimeout))
})
