package dashboard_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// A violation is a rule of axe-core that elements of the page break.
type violation struct {
	ID, Help string
	Nodes    []struct {
		Target         []any
		FailureSummary string
	}
}

func (v violation) String() string {
	text := v.ID + ": " + v.Help
	for _, n := range v.Nodes {
		text += fmt.Sprintf("\n  %v: %s", n.Target, strings.ReplaceAll(n.FailureSummary, "\n", " "))
	}
	return text
}

// expectAccessible checks what the window shows with all rules of axe-core, in light and in dark, in a narrow and in a wide window.
func expectAccessible(ctx context.Context, view string) {
	GinkgoHelper()
	var isLoaded bool
	Expect(window.Run(ctx, "return !!window.axe", &isLoaded)).To(Succeed())
	if !isLoaded {
		axe, err := os.ReadFile(filepath.Join(env.Root, "dashboard", "page", "node_modules", "axe-core", "axe.min.js"))
		Expect(err).NotTo(HaveOccurred(), "`make axe` installs axe-core with npm")
		Expect(window.Run(ctx, string(axe), nil)).To(Succeed())
	}
	for _, width := range []int{420, 1400} {
		Expect(window.Resize(ctx, width, 900)).To(Succeed())
		for _, scheme := range []string{"light", "dark"} {
			var found []violation
			Expect(window.Run(ctx, fmt.Sprintf(`document.documentElement.style.colorScheme = %q;
				document.querySelectorAll("details").forEach((d) => { d.open = true; });
				return axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`, scheme), &found)).To(Succeed())
			Expect(found).To(BeEmpty(), "%s, %d pixels wide, %s", view, width, scheme)
		}
	}
}

var _ = Describe("The page", func() {
	It("breaks no rule of axe-core", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { Expect(window.Resize(ctx, 1400, 900)).To(Succeed()) }, NodeTimeout(patience))
		for _, one := range []struct{ view, has string }{
			{"overview", "Next changes"},
			{"queues", "40 of 16 used"},
			{"queues/vision", "team-vision/large"},
			{"queues/vision?list=holding", "team-vision/fine-tune"},
			{"queues/vision?list=other", "stage evaluate"},
			{"queues/vision?list=usage", "pending quota Workloads"},
			{"queues/vision?list=settings", "spec.stopPolicy"},
			{"queues/vision?list=yaml", "cohortName: research"},
			{"localqueues", "team-vision"},
			{"localqueues/team-vision/training", "team-vision/large"},
			{"localqueues/team-vision/training?list=settings", "spec.clusterQueue"},
			{"jobsets", "secret-model"},
			{"jobsets?text=none", "Nothing matches the filters"},
			{"jobsets/team-vision/fine-tune", "Stage 2/3 train"},
			{"jobsets/team-vision/fine-tune?list=pods", "fine-tune-train-0-0"},
			{"jobsets/team-vision/fine-tune?list=events", "StageReleased"},
			{"jobsets/team-vision/fine-tune?list=yaml", "replicatedJobs:"},
			{"jobsets/team-vision/large", "Any one of these would let it in:"},
			{"elsewhere", "There is no such view"},
		} {
			open(ctx, address, one.view)
			see(ctx, one.has, "live")
			expectAccessible(ctx, one.view)
		}
		open(ctx, address, "jobsets")
		see(ctx, "secret-model")
		Expect(window.Type(ctx, "/large")).To(Succeed())
		seeElement(ctx, ".search li", "JobSet team-vision/large")
		expectAccessible(ctx, "the results of a search")
		open(ctx, serve("--kubeconfig", kubeconfigOf(ctx, "bob", "team-vision")), "jobsets")
		see(ctx, "Not everything is shown", "fine-tune")
		expectAccessible(ctx, "what a user of one namespace sees")
		open(ctx, managerAddress, "")
		see(ctx, "Bearer token")
		expectAccessible(ctx, "the sign-in page")
	}, SpecTimeout(2*specTimeout))
})
