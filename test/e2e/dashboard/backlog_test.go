package dashboard_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/test/browser"
)

const (
	backlog = 10_000
	// pageRows is the number of rows of a page, and pageBytes an upper bound of its answer: 450 bytes for each row, and the columns of long messages.
	pageRows  = 50
	pageBytes = 64 << 10
	// changeEvery is the time between two changes of the line.
	changeEvery = 10 * time.Millisecond
)

// pending returns quota Workloads in one line. The numbers in their names are their priorities, so that the last one is next. A control plane is not
// used, because it takes 80 seconds to create them.
func pending(count int) []metav1.Object {
	objects := queue("backlog", nil)
	for i := range count {
		name := fmt.Sprintf("backlog-%05d", i)
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()},
			Spec:       kueue.WorkloadSpec{QueueName: "backlog", Priority: new(int32(i)), PodSets: []kueue.PodSet{{Name: "main", Count: 1}}},
		}
		w.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", LastTransitionTime: metav1.Now()},
			{Type: apis.WaitingCondition, Status: metav1.ConditionTrue, Reason: "WaitingForQuota", Message: "insufficient quota for nvidia.com/gpu in flavor a100: 16 requested, 8 available"},
		}
		objects = append(objects, w)
	}
	return objects
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

var _ = Describe("A line of ten thousand", Ordered, func() {
	const path = "/api/v1/queues/backlog/workloads"
	var url string
	store := server.NewStore()
	BeforeAll(func() { url = serveStore(store, pending(backlog)...) })

	It("is read in pages, in its order", func(ctx SpecContext) {
		open(ctx, url, "queues/backlog")
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
		open(ctx, url, "queues/backlog?offset=9990")
		see(ctx, "9,991–10,000 of 10,000 quota Workloads", "team/backlog-00009")
		Expect(rows(ctx, Default)).To(HaveLen(10))
		var elements int
		Expect(window.Run(ctx, `return document.querySelectorAll("*").length`, &elements)).To(Succeed())
		Expect(elements).To(BeNumerically("<", 1500), "elements of the page")
	}, SpecTimeout(specTimeout))

	It("is filtered by keys alone, without a loss of positions", func(ctx SpecContext) {
		open(ctx, url, "queues/backlog")
		see(ctx, "1–50 of 10,000 quota Workloads")
		Expect(window.Run(ctx, `document.querySelector("main .filters input").focus()`, nil)).To(Succeed())
		Expect(window.Type(ctx, "backlog-00000")).To(Succeed())
		see(ctx, "1–1 of 1 quota Workload", "team/backlog-00000")
		Expect(rows(ctx, Default)[0]).To(HavePrefix("9999\t"))
		Expect(window.Type(ctx, "x")).To(Succeed())
		see(ctx, "Nothing matches the filters")
		Expect(window.Type(ctx, browser.Tab)).To(Succeed())
		open(ctx, url, "queues/backlog?namespace=elsewhere")
		see(ctx, "Nothing matches the filters")
	}, SpecTimeout(specTimeout))

	It("is read at most once a second while it changes", func(ctx SpecContext) {
		open(ctx, url, "queues/backlog")
		see(ctx, "1–50 of 10,000 quota Workloads")
		fetched(ctx, Default, path)
		start := time.Now()
		changes := 0
		ticker := time.NewTicker(changeEvery)
		defer ticker.Stop()
		for ; time.Since(start) < 3*time.Second; changes++ {
			<-ticker.C
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("backlog-%05d", changes)}}
			store.Use(func(m *dashboard.Model) { m.Forget(w) })
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
