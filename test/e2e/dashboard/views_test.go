package dashboard_test

import (
	"context"
	"net"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tranche-dev/tranche/test/browser"
)

var _ = Describe("The dashboard of an administrator", func() {
	It("shows the tree of queues with their quota and fair shares", func(ctx SpecContext) {
		open(ctx, address, "queues")
		see(ctx, "research", "speech", "vision", "40 of 16 used", "24 borrowed", "24 lent", "live")
		// Of the 48 GPUs of the Cohort, 24 are borrowed: 500 thousandths at weight 1, and half of that at weight 2.
		for name, share := range map[string]string{"vision": "250", "speech": "0", "research": "0"} {
			seeElement(ctx, `tr:has(a[href$="`+name+`"]) [data-label="share"]`, share)
		}
		take(ctx, "queues.png")
	}, SpecTimeout(specTimeout))

	It("shows the line of a ClusterQueue with reasons", func(ctx SpecContext) {
		open(ctx, address, "queues/vision")
		see(ctx, "ClusterQueue vision", "fair share 250 at weight 2", "team-vision/large", "WaitingForQuota", "1 quota Workload")
		Eventually(func(g Gomega) {
			var start string
			g.Expect(window.Run(ctx, `return document.querySelector('tr:has(a[href$="/large"]) .start').innerText`, &start)).To(Succeed())
			g.Expect(start).To(HavePrefix("by "), "what the manager has written")
		}).WithContext(ctx).Should(Succeed())
		take(ctx, "queue.png")
		Expect(window.Click(ctx, ".tabs a:nth-child(2)")).To(Succeed())
		see(ctx, "team-vision/fine-tune", "stage train", "40 nvidia.com/gpu of a100")
		seeElement(ctx, "tbody .state", "Running")
	}, SpecTimeout(specTimeout))

	It("shows the stages of a JobSet over time", func(ctx SpecContext) {
		open(ctx, address, "jobsets/team-vision/fine-tune")
		see(ctx, "JobSet fine-tune", "Stage 1/3 download", "Stage 2/3 train", "Stage 3/3 evaluate", "starts after download is Succeeded")
		seeElement(ctx, ".stage .state", "Finished")
		seeElement(ctx, ".stage .state", "Running")
		seeElement(ctx, ".stage .state", "Gated")
		var spans []string
		Expect(window.Run(ctx, `return [...document.querySelectorAll(".gantt-track i")].map((i) => i.className)`, &spans)).To(Succeed())
		Expect(spans).To(ContainElements("span-running"))
		take(ctx, "jobset.png")
		for theme, background := range map[string]string{"dark": "rgb(20, 23, 28)", "light": "rgb(255, 255, 255)"} {
			choose := `const s = document.getElementById("theme"); s.value = "` + theme + `"; s.dispatchEvent(new Event("change"))`
			Expect(window.Run(ctx, choose, nil)).To(Succeed())
			Eventually(func(g Gomega) {
				var color string
				g.Expect(window.Run(ctx, "return getComputedStyle(document.body).backgroundColor", &color)).To(Succeed())
				g.Expect(color).To(Equal(background))
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("shows why a JobSet waits, and what would let it in", func(ctx SpecContext) {
		open(ctx, address, "jobsets/team-vision/large")
		see(ctx, "Missing quota", "Any one of these would let it in:", "raise nominalQuota of nvidia.com/gpu", "From a snapshot taken")
	}, SpecTimeout(specTimeout))

	It("filters queues, and plots the usage of one", func(ctx SpecContext) {
		open(ctx, address, "queues")
		see(ctx, "vision", "speech")
		Expect(window.Run(ctx, `const s = document.querySelector("main .filters select"); s.value = "borrowing"; s.dispatchEvent(new Event("change"))`, nil)).To(Succeed())
		Eventually(func(g Gomega) {
			var names []string
			g.Expect(window.Run(ctx, `return [...document.querySelectorAll(".queues tbody tr:not(.cohort) a")].map((a) => a.innerText)`, &names)).To(Succeed())
			g.Expect(names).To(ConsistOf("vision"))
		}).WithContext(ctx).Should(Succeed())
		var link string
		Expect(window.Run(ctx, "return location.hash", &link)).To(Succeed())
		Expect(link).To(Equal("#/queues?state=borrowing"), "a link to what is shown")
		open(ctx, address, "queues/vision?list=usage")
		Eventually(func(g Gomega) {
			var labels []string
			g.Expect(window.Run(ctx, `return [...document.querySelectorAll(".plot:has(canvas)")].map((p) => p.ariaLabel)`, &labels)).To(Succeed())
			g.Expect(labels).To(ContainElement(And(ContainSubstring("nvidia.com/gpu"), ContainSubstring("40"))), "what is used now")
		}).WithContext(ctx).WithTimeout(specTimeout).Should(Succeed()) // usage is sampled once a minute
	}, SpecTimeout(specTimeout))

	It("finds a JobSet by keys alone and follows its changes", func(ctx SpecContext) {
		open(ctx, address, "jobsets")
		see(ctx, "secret-model", "large", "live")
		Expect(window.Type(ctx, "/secret")).To(Succeed())
		see(ctx, "team-speech/secret-model")
		Expect(window.Type(ctx, browser.ArrowDown+browser.Enter)).To(Succeed())
		see(ctx, "JobSet secret-model", "WaitingForQuota")
		create(ctx, "team-vision", "later", stage{"train", "1", "1", "", ""})
		open(ctx, address, "jobsets?text=later")
		see(ctx, "later", "1–1 of 1 JobSet")
	}, SpecTimeout(specTimeout))

	It("takes no text for HTML", func(ctx SpecContext) {
		open(ctx, address, "jobsets/team-vision/hostile")
		see(ctx, markup)
		open(ctx, address, "queues/"+strings.ReplaceAll(markup, " ", "%20"))
		see(ctx, "ClusterQueue "+markup, "not found")
		var title string
		Expect(window.Run(ctx, "return document.title", &title)).To(Succeed())
		Expect(title).NotTo(Equal("injected"))
		var images int
		Expect(window.Run(ctx, `return document.querySelectorAll("img").length`, &images)).To(Succeed())
		Expect(images).To(BeZero())
		// A queue that does not exist is an answer with an error status, which browsers log at each change, until another page is open.
		Expect(window.Open(ctx, "about:blank")).To(Succeed())
		_, err := window.Errors(ctx)
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The dashboard of a user of one namespace", func() {
	It("shows that namespace, and which rights are missing", func(ctx SpecContext) {
		url := serve("--kubeconfig", kubeconfigOf(ctx, "ada", "team-vision"))
		open(ctx, url, "jobsets")
		see(ctx, "fine-tune", "Not everything is shown", "clusterqueues.kueue.x-k8s.io", `User "ada" cannot list resource "clusterqueues"`,
			"tranche-dashboard-viewer", `only namespace "team-vision" is shown`, "ada on "+markup)
		text, err := window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(ContainSubstring("secret-model"))
		take(ctx, "missing-rights.png")
		Expect(window.Click(ctx, `input[list="namespaces"]`)).To(Succeed())
		Eventually(func(g Gomega) {
			var names []string
			g.Expect(window.Run(ctx, `return [...document.querySelectorAll("#namespaces option")].map((o) => o.value)`, &names)).To(Succeed())
			g.Expect(names).To(ConsistOf("team-vision"))
		}).WithContext(ctx).Should(Succeed())
		open(ctx, url, "queues/vision")
		see(ctx, "NotRead: the ClusterQueue does not exist, or may not be read", "team-vision/large")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The server of the dashboard", func() {
	// status returns the HTTP status of a request without cookies, after a change to it.
	status := func(ctx context.Context, path string, change func(r *http.Request)) int {
		GinkgoHelper()
		base, _, _ := strings.Cut(address, "?")
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		request.Host, request.URL.Host = request.URL.Host, net.JoinHostPort("127.0.0.1", request.URL.Port()) // only browsers resolve the name
		change(request)
		response, err := http.DefaultTransport.RoundTrip(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		return response.StatusCode
	}

	It("answers no other host, no other method, and no request without the token", func(ctx SpecContext) {
		_, token, _ := strings.Cut(address, "token=")
		Expect(status(ctx, "api/v1/about", func(*http.Request) {})).To(Equal(http.StatusUnauthorized))
		Expect(status(ctx, "?token="+token, func(*http.Request) {})).To(Equal(http.StatusSeeOther))
		Expect(status(ctx, "?token="+token, func(r *http.Request) { r.Host = "rebound.example.com" })).To(Equal(http.StatusMisdirectedRequest))
		Expect(status(ctx, "?token="+token, func(r *http.Request) { r.Host = r.URL.Host })).To(Equal(http.StatusMisdirectedRequest))
		Expect(status(ctx, "?token="+token, func(r *http.Request) { r.Method = http.MethodPost })).To(Equal(http.StatusMethodNotAllowed))
	}, SpecTimeout(specTimeout))
})
