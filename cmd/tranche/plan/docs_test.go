package plan_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	flux "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/plan"
	"github.com/tranche-dev/tranche/test/document"
)

const (
	root = "../../.."
	// asTranche makes the test program run as tranche.
	asTranche = "RUN_AS_TRANCHE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asTranche) == "" {
		os.Exit(m.Run())
	}
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	cmd.AddCommand(plan.NewCommand("test"), plan.NewWhatIfCommand("test"))
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitcode.Of(err))
	}
	os.Exit(0)
}

// blocks returns the code blocks of the document about GitOps.
func blocks(t *testing.T) []document.Block {
	t.Helper()
	all, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(b document.Block) bool { return b.File != "docs/gitops.md" })
}

// tranche runs the test program as tranche in the root of the repository.
func tranche(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), args...) // #nosec G204 -- the commands are those of a document
	cmd.Dir, cmd.Env = root, append(os.Environ(), asTranche+"=1")
	var errors strings.Builder
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() == exitcode.Failure {
		t.Errorf("tranche %s: %s", strings.Join(args, " "), &errors)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func program(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDocumentedCommands runs the commands of the document, those about the cluster on a snapshot of the samples. The document shows what the first one
// prints.
func TestDocumentedCommands(t *testing.T) {
	samples := t.TempDir()
	if err := os.CopyFS(samples, os.DirFS(filepath.Join(root, "config", "samples", "queues"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(samples, "kustomization.yaml")); err != nil {
		t.Fatal(err)
	}
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {accelerator: a100, topology.kubernetes.io/zone: a}}\nstatus: {allocatable: {nvidia.com/gpu: 8}}\n"
	if err := os.WriteFile(filepath.Join(samples, "nodes.yaml"), []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	all, ran := blocks(t), 0
	for i := range all {
		if all[i].Language != "sh" {
			continue
		}
		for _, command := range all[i].Commands() {
			words := strings.Fields(command)
			if words[0] != "tranche" || words[1] != "plan" && words[1] != "what-if" {
				continue
			}
			ran++
			if slices.Contains(words, "--snapshot") {
				if out, _ := tranche(t, words[1:]...); out != all[i+1].Text {
					t.Errorf("%s shows\n%s\nand %s prints\n%s", &all[i+1], all[i+1].Text, command, out)
				}
				continue
			}
			tranche(t, append(words[1:], "--snapshot", samples)...)
		}
	}
	if ran < 4 {
		t.Errorf("%d commands, want at least 4", ran)
	}
}

// TestDocumentedWorkflow runs the steps of the GitHub workflow, with a recorded change as the pull request.
func TestDocumentedWorkflow(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct{ Steps []workflowStep }
	}
	for _, block := range blocks(t) {
		if block.Language == "yaml" && strings.Contains(block.Text, "\njobs:\n") {
			if err := yaml.Unmarshal([]byte(block.Text), &workflow); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("without a plan", func(t *testing.T) {
		dir, bin := t.TempDir(), t.TempDir()
		script(t, bin, "aws", "touch \"$4\"")
		script(t, bin, "tranche", "exit 127")
		script(t, bin, "gh", "touch gh.txt")
		if out, err := runSteps(t, workflow.Jobs["plan"].Steps, dir, bin, ""); err == nil {
			t.Errorf("the workflow passes:\n%s", out)
		}
		if _, err := os.Stat(filepath.Join(dir, "gh.txt")); err == nil {
			t.Error("the workflow writes a comment")
		}
	})
	for name, fails := range map[string]bool{"quota-cut": true, "quota-raised": false} {
		t.Run(name, func(t *testing.T) {
			dir, bin := t.TempDir(), t.TempDir()
			world, err := filepath.Abs(filepath.Join(recorded, name))
			if err != nil {
				t.Fatal(err)
			}
			script(t, bin, "tranche", fmt.Sprintf("%s=1 exec %s \"$@\"", asTranche, program(t)))
			script(t, bin, "aws", fmt.Sprintf("cp -r %s/snapshot \"$4\"", world))
			script(t, bin, "gh", "echo \"$@\" > gh.txt")
			setup := fmt.Sprintf("mkdir queues && cp %s/queues.yaml queues", world)
			out, err := runSteps(t, workflow.Jobs["plan"].Steps, dir, bin, setup)
			if (err != nil) != fails {
				t.Errorf("the workflow fails: %t, want %t: %v\n%s", err != nil, fails, err, out)
			}
			comment, err := os.ReadFile(filepath.Join(dir, "plan.md"))
			want, errWant := os.ReadFile(filepath.Join(world, "plan.md"))
			if err != nil || errWant != nil || string(comment) != string(want) {
				t.Errorf("the comment is %s, want %s: %v, %v", comment, want, err, errWant)
			}
			if called, err := os.ReadFile(filepath.Join(dir, "gh.txt")); err != nil || !strings.HasPrefix(string(called), "pr comment 7 ") {
				t.Errorf("gh is called with %q: %v", called, err)
			}
		})
	}
}

// A workflowStep is a step of a GitHub workflow.
type workflowStep struct{ Name, Run string }

// runSteps runs the steps of a workflow in a directory, after a command that prepares it, with programs that come first in the path.
func runSteps(t *testing.T, steps []workflowStep, dir, bin, setup string) (out []byte, err error) {
	t.Helper()
	run := "set -e\n" + setup + "\n"
	for _, step := range steps {
		run += step.Run + "\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", run) // #nosec G204 -- the commands are those of a document
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PULL_REQUEST=7")
	return cmd.CombinedOutput()
}

func script(t *testing.T, dir, name, command string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/usr/bin/env bash\n"+command+"\n"), 0o700); err != nil { // #nosec G306 -- it is a program
		t.Fatal(err)
	}
}

// TestDocumentedHook runs the command of the hook of Argo CD, with other directories.
func TestDocumentedHook(t *testing.T) {
	world := filepath.Join("plan", "testdata", "quota-raised")
	ran := false
	for _, block := range blocks(t) {
		var job batchv1.Job
		if block.Language != "yaml" || yaml.Unmarshal([]byte(block.Text), &job) != nil || job.Kind != "Job" {
			continue
		}
		ran = true
		args := slices.Clone(job.Spec.Template.Spec.Containers[0].Args)
		args[slices.Index(args, "/queues")] = filepath.Join(world, "queues.yaml")
		if _, code := tranche(t, append(args, "--snapshot", filepath.Join(world, "snapshot"))...); code != 2 {
			t.Errorf("exit code %d, want 2", code)
		}
	}
	if !ran {
		t.Error("the document has no Job")
	}
}

// TestDocumentedFlux decodes the Kustomizations of Flux with its types: that of the queues waits for that of the plan, which is ready when the Job has
// succeeded, and recreates the Job.
func TestDocumentedFlux(t *testing.T) {
	applied := map[string]*flux.Kustomization{}
	for _, block := range blocks(t) {
		if block.Language != "yaml" {
			continue
		}
		for document := range strings.SplitSeq(block.Text, "\n---\n") {
			if !strings.Contains(document, "apiVersion: "+flux.GroupVersion.String()+"\n") {
				continue
			}
			k := &flux.Kustomization{}
			if err := yaml.UnmarshalStrict([]byte(document), k); err != nil {
				t.Fatalf("%s: %v", &block, err)
			}
			if k.Kind != flux.KustomizationKind || k.Spec.Path == "" || k.Spec.Interval.Duration <= 0 || k.Spec.SourceRef.Kind == "" || k.Spec.SourceRef.Name == "" {
				t.Errorf("%s lacks what the schema requires: %+v", &block, k)
			}
			applied[k.Name] = k
		}
	}
	queues, plans := applied["queues"], applied["plan-queues"]
	if queues == nil || plans == nil {
		t.Fatalf("the document has %d Kustomizations, want queues and plan-queues", len(applied))
	}
	if len(queues.Spec.DependsOn) != 1 || queues.Spec.DependsOn[0].Name != plans.Name || queues.Namespace != plans.Namespace || queues.Spec.SourceRef != plans.Spec.SourceRef {
		t.Errorf("the queues do not depend on the plan of the same source: %+v", queues.Spec)
	}
	if !plans.Spec.Wait || !plans.Spec.Force || plans.Spec.TargetNamespace == "" {
		t.Errorf("the plan does not wait for the Job, recreate it, and have its namespace: %+v", plans.Spec)
	}
}
