package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/browser"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	backlog = 10_000
	// creators is how many quota Workloads are created at the same time.
	creators = 16
	// pageRows is the number of rows of a page, and pageBytes an upper bound of its answer: 450 bytes for each row, and the columns of long messages.
	pageRows  = 50
	pageBytes = 64 << 10
	// changeEvery is the time between two changes of the line.
	changeEvery = 20 * time.Millisecond
)

// backlogName returns the name of a quota Workload. Its number is its priority, so that the last one is next.
func backlogName(number int) string { return fmt.Sprintf("backlog-%05d", number) }

// createBacklog creates quota Workloads that wait in one line: each asks for more than the quota of the ClusterQueue.
func createBacklog(ctx context.Context, count int) {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, "team", nil)).To(Succeed())
	for _, object := range queue("backlog", func(q *kueue.ClusterQueue) { q.Spec.NamespaceSelector = &metav1.LabelSelector{} }) {
		Expect(env.Admin.Create(ctx, object.(client.Object))).To(Succeed())
	}
	numbers := make(chan int)
	problems := make([]error, creators)
	var group sync.WaitGroup
	for i := range creators {
		group.Go(func() {
			for number := range numbers {
				if problems[i] == nil {
					problems[i] = env.Admin.Create(ctx, newBacklog(number))
				}
			}
		})
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	group.Wait()
	Expect(errors.Join(problems...)).NotTo(HaveOccurred())
}

func newBacklog(number int) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: backlogName(number)}}
	w.Spec.QueueName, w.Spec.Priority = "backlog", new(int32(number))
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "example.com/train", Resources: corev1.ResourceRequirements{Requests: sample.Amounts(string(gpu), "16")}}},
	}}}}
	return w
}

// fetched returns how many answers below a path the page has read since the last call, and the bytes of the largest.
func fetched(ctx context.Context, g Gomega, path string) (count, largest int) {
	var sizes []int
	script := fmt.Sprintf(`const found = performance.getEntriesByType("resource").filter((e) => new URL(e.name).pathname === %q).map((e) => e.decodedBodySize);
		performance.clearResourceTimings(); return found`, path)
	g.Expect(window.Run(ctx, script, &sizes)).To(Succeed())
	for _, size := range sizes {
		largest = max(largest, size)
	}
	return len(sizes), largest
}

func rows(ctx context.Context, g Gomega) (texts []string) {
	g.Expect(window.Run(ctx, `return [...document.querySelectorAll(".workloads tbody tr")].map((r) => r.innerText)`, &texts)).To(Succeed())
	return texts
}

// These specs are the last of the suite, and leave the line behind: it would take as long to delete it as to create it.
var _ = Describe("A line of ten thousand", Ordered, SpecPriority(-1), func() {
	const (
		path          = "/api/v1/queues/backlog/workloads"
		createTimeout = 5 * time.Minute
	)
	BeforeAll(func(ctx SpecContext) {
		createBacklog(ctx, backlog)
	}, NodeTimeout(createTimeout))

	It("is read in pages, in its order", func(ctx SpecContext) {
		open(ctx, address, "queues/backlog")
		see(ctx, "1–50 of 10,000 quota Workloads", "team/backlog-09999")
		count, largest := fetched(ctx, Default, path)
		Expect(count).To(BeNumerically(">", 0))
		Expect(largest).To(BeNumerically("<", pageBytes), "bytes of a page")
		Expect(rows(ctx, Default)).To(HaveLen(pageRows))
		Expect(window.Click(ctx, "#next-page")).To(Succeed())
		see(ctx, "51–100 of 10,000 quota Workloads")
		Expect(rows(ctx, Default)[0]).To(HavePrefix("50\t"))
		Expect(window.Run(ctx, "history.back()", nil)).To(Succeed())
		see(ctx, "1–50 of 10,000 quota Workloads")
		open(ctx, address, "queues/backlog?offset=9990")
		see(ctx, "9,991–10,000 of 10,000 quota Workloads", "team/backlog-00009")
		Expect(rows(ctx, Default)).To(HaveLen(10))
		var elements int
		Expect(window.Run(ctx, `return document.querySelectorAll("*").length`, &elements)).To(Succeed())
		Expect(elements).To(BeNumerically("<", 1500), "elements of the page")
	}, SpecTimeout(createTimeout+specTimeout)) // the time of BeforeAll counts, too

	It("is filtered by keys alone, without a loss of positions", func(ctx SpecContext) {
		open(ctx, address, "queues/backlog")
		see(ctx, "1–50 of 10,000 quota Workloads")
		Expect(window.Run(ctx, `document.querySelector("main .filters input").focus()`, nil)).To(Succeed())
		Expect(window.Type(ctx, "backlog-00000")).To(Succeed())
		see(ctx, "1–1 of 1 quota Workload", "team/backlog-00000")
		Expect(rows(ctx, Default)[0]).To(HavePrefix("9999\t"))
		Expect(window.Type(ctx, "x")).To(Succeed())
		see(ctx, "Nothing matches the filters")
		Expect(window.Type(ctx, browser.Tab)).To(Succeed())
		open(ctx, address, "queues/backlog?namespace=elsewhere")
		see(ctx, "Nothing matches the filters")
	}, SpecTimeout(specTimeout))

	It("is read at most once a second while it changes", func(ctx SpecContext) {
		open(ctx, address, "queues/backlog")
		see(ctx, "1–50 of 10,000 quota Workloads")
		fetched(ctx, Default, path)
		start := time.Now()
		changes := 0
		ticker := time.NewTicker(changeEvery)
		defer ticker.Stop()
		for ; time.Since(start) < 3*time.Second; changes++ {
			<-ticker.C
			Expect(env.Admin.Delete(ctx, newBacklog(changes))).To(Succeed())
		}
		see(ctx, fmt.Sprintf("of %s quota Workloads", thousands(backlog-changes)))
		most := int(time.Since(start)/time.Second) + 2 // one for the begun second, and one for a change before
		count, largest := fetched(ctx, Default, path)
		Expect(changes).To(BeNumerically(">", most), "more changes than reads are needed to tell them apart")
		Expect(count).To(And(BeNumerically(">", 0), BeNumerically("<=", most)))
		Expect(largest).To(BeNumerically("<", pageBytes))
	}, SpecTimeout(specTimeout))
})

// thousands formats a number from 1,000 to 999,999 as the page does.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
