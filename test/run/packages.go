package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// roots are the directories whose packages with tests are jobs.
var roots = []string{"./test/e2e/...", "./test/integration/...", "./test/soak/...", "./test/controlplane/...", "./test/invariants/...", "./test/install/...", "./test/kueue/..."}

// checkComplete returns an error if a package with tests is no job: its tests would never run.
func checkComplete(ctx context.Context, tags string) error {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	output, err := exec.CommandContext(ctx, "go", append([]string{"list", "-tags", tags, "-f", format}, roots...)...).Output()
	if err != nil {
		return fmt.Errorf("list the packages with tests: %w", err)
	}
	if missing := missingIn(jobs, strings.Fields(string(output))); len(missing) > 0 {
		return fmt.Errorf("no job of test/run has %s: add it", strings.Join(missing, ", "))
	}
	return nil
}

// missingIn returns the packages that are no job.
func missingIn(jobs []job, packages []string) []string {
	return slices.DeleteFunc(packages, func(path string) bool {
		return slices.ContainsFunc(jobs, func(j job) bool { return strings.HasSuffix(path, strings.TrimPrefix(j.pkg, ".")) })
	})
}

// width is how many processes run specs.
func (j job) width() int { return max(j.processes, 1) }

// command returns the program that runs the tests of a job. Ginkgo's own program runs the specs of a suite in several processes.
func (j job) command(ctx context.Context, tags string) *exec.Cmd {
	if j.processes > 0 {
		return exec.CommandContext(ctx, "go", "run", "github.com/onsi/ginkgo/v2/ginkgo", "run", "--tags", tags, "--timeout", timeout, "--no-color",
			fmt.Sprintf("--procs=%d", j.processes), j.pkg)
	}
	return exec.CommandContext(ctx, "go", "test", "-vet=off", "-tags", tags, "-count=1", "-timeout", timeout, j.pkg)
}
