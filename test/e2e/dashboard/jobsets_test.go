package dashboard_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/browser"
)

// listed returns JobSets of one stage that wait for a reason, or run. The JobSets with later names have been so for longer.
func listed(reason string, count int) (objects []metav1.Object) {
	for i := range count {
		js, w := waiting(fmt.Sprintf("%s-%02d", strings.ToLower(reason), i), "q", nil)
		c := metav1.Condition{
			Type: jobsetstatus.StageAdmitted, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(in(time.Duration(-i) * time.Minute)),
		}
		objects = append(objects, js)
		if reason == "Admitted" {
			c.Status = metav1.ConditionTrue
		} else {
			objects = append(objects, w)
		}
		js.Status.Conditions, js.Status.Restarts = append(js.Status.Conditions, c), int32(i%7)
	}
	return objects
}

// seeOrder waits until the list of JobSets begins with these names.
func seeOrder(ctx context.Context, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var shown []string
		g.Expect(window.Run(ctx, `return [...document.querySelectorAll("main tbody td.name")].map((e) => e.innerText)`, &shown)).To(Succeed())
		g.Expect(len(shown)).To(BeNumerically(">=", len(names)))
		g.Expect(shown[:len(names)]).To(Equal(names))
	}).WithContext(ctx).Should(Succeed())
}

// seeView waits until the page shows a view, of which a link can be copied.
func seeView(ctx context.Context, view string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var link string
		g.Expect(window.Run(ctx, "return location.hash", &link)).To(Succeed())
		g.Expect(link).To(Equal("#/" + view))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The list of JobSets", func() {
	It("begins with what needs attention, and is sorted by the headers of its columns", func(ctx SpecContext) {
		objects := append(queue("q", nil), listed("Admitted", 2)...)
		url := serveObjects(append(append(objects, listed("WaitingForQuota", 60)...), listed("ExceedsMaxQuota", 2)...)...)
		open(ctx, url, "jobsets")
		see(ctx, "2 Admitted, 62 Waiting", "1–50 of 64 JobSets", "position 59")
		seeOrder(ctx, "exceedsmaxquota-00", "exceedsmaxquota-01", "waitingforquota-59", "waitingforquota-58")

		Expect(window.Click(ctx, "th:nth-child(2) button")).To(Succeed())
		seeOrder(ctx, "admitted-00", "admitted-01", "exceedsmaxquota-00")
		seeView(ctx, "jobsets?sort=name")
		// The header keeps the focus, so that keys reverse the order.
		Expect(window.Type(ctx, browser.Enter)).To(Succeed())
		seeOrder(ctx, "waitingforquota-59", "waitingforquota-58")
		seeView(ctx, "jobsets?sort=-name")
		var orders []string
		Expect(window.Run(ctx, `return [...document.querySelectorAll("th")].map((e) => e.ariaSort)`, &orders)).To(Succeed())
		Expect(orders).To(Equal([]string{"none", "descending", "none", "none", "none", "none", "none", "none", "none", "none", "none"}))
		Expect(window.Click(ctx, "#next-page")).To(Succeed())
		see(ctx, "51–64 of 64 JobSets")
		seeOrder(ctx, "waitingforquota-09", "waitingforquota-08")

		// A link keeps the order, and filters do, too.
		Expect(window.Open(ctx, "about:blank")).To(Succeed())
		open(ctx, url, "jobsets?sort=-restarts")
		see(ctx, "Sorted by Restarts.")
		seeOrder(ctx, "waitingforquota-06", "waitingforquota-13")
		focusOn(ctx, "main .filters input")
		Expect(window.Type(ctx, "max")).To(Succeed())
		see(ctx, "2 Waiting", "1–2 of 2 JobSets")
		seeOrder(ctx, "exceedsmaxquota-01", "exceedsmaxquota-00")
		seeView(ctx, "jobsets?sort=-restarts&text=max")
		Expect(window.Click(ctx, "main p a")).To(Succeed())
		seeOrder(ctx, "exceedsmaxquota-00", "exceedsmaxquota-01")
		seeView(ctx, "jobsets?text=max")
	}, SpecTimeout(specTimeout))

	It("is sorted by keys alone in a narrow window, which has no headers", func(ctx SpecContext) {
		url := serveObjects(append(queue("q", nil), listed("Admitted", 12)...)...)
		open(ctx, url, "jobsets")
		seeOrder(ctx, "admitted-00", "admitted-01")
		isShown := func() (isShown bool) {
			GinkgoHelper()
			Expect(window.Run(ctx, `return document.querySelector(".order").checkVisibility()`, &isShown)).To(Succeed())
			return isShown
		}
		Expect(isShown()).To(BeFalse(), "a wide window has headers")
		Expect(window.Resize(ctx, 420, 900)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(window.Resize(ctx, 1400, 900)).To(Succeed()) }, NodeTimeout(patience))
		Expect(isShown()).To(BeTrue())
		focusOn(ctx, ".order select")
		Expect(window.Type(ctx, "Name, d")).To(Succeed()) // the first that begins so
		seeOrder(ctx, "admitted-11", "admitted-10")
		seeView(ctx, "jobsets?sort=-name")
		Expect(window.Type(ctx, browser.ArrowDown)).To(Succeed())
		seeView(ctx, "jobsets?sort=clusterQueue")
		Expect(window.Run(ctx, `const s = document.activeElement; s.selectedIndex = 0; s.dispatchEvent(new Event("change"))`, nil)).To(Succeed())
		seeOrder(ctx, "admitted-00", "admitted-01")
		seeView(ctx, "jobsets")
	}, SpecTimeout(specTimeout))

	It("is the first view of a user who may read no ClusterQueue", func(ctx SpecContext) {
		url := serve("--kubeconfig", kubeconfigOf(ctx, "lin", "team-vision"))
		Expect(window.Open(ctx, url)).To(Succeed())
		seeView(ctx, "jobsets")
		see(ctx, "fine-tune", "40 nvidia.com/gpu")
		var focus string
		Expect(window.Run(ctx, "return document.activeElement.tagName", &focus)).To(Succeed())
		Expect(focus).To(Equal("BODY"), "the first key reaches the link that skips to the content")
		var views string
		Expect(window.Run(ctx, `return document.querySelector("header nav").innerText`, &views)).To(Succeed())
		Expect(views).NotTo(ContainSubstring("Overview"))
		open(ctx, url, "queues")
		see(ctx, "There are no ClusterQueues, or you may not read them.")
	}, SpecTimeout(specTimeout))
})
