package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/sample"
)

// due follows in the message of a stage that has waited for longer than reservation.after.
const due = "; due since 2026-01-01T10:20:00Z: quota that is released is kept for it, up to 2 cpu of flavor h100; it starts by 2026-01-01T12:00:00Z"

const queues = sample.OneQueue + `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: ml, name: waits, uid: u2, resourceVersion: "1", creationTimestamp: "2026-01-01T10:10:00Z"}
spec:
  active: true
  queueName: main
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: other, name: runs, uid: u3, labels: {tranche.dev/job: late, tranche.dev/job-uid: u5}, resourceVersion: "1", creationTimestamp: "2026-01-01T10:10:00Z"}
spec:
  active: true
  queueName: none
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  namespace: other
  name: job-theirs-1a2b3
  uid: u6
  resourceVersion: "1"
  creationTimestamp: "2026-01-01T10:10:00Z"
  labels: {kueue.x-k8s.io/job-uid: u7}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: theirs, uid: u7, controller: true}]
spec:
  active: true
  queueName: none
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {namespace: ml, name: unheld, uid: u4, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicatedJobs: [{name: main, replicas: 1, template: {spec: {template: {spec: {containers: [{name: c}]}}}}}]
`

// run returns the output of the verb for a snapshot.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return runOn(t, queues, args...)
}

// runOn returns the output of the verb for a snapshot of these objects.
func runOn(t *testing.T, objects string, args ...string) (string, error) {
	t.Helper()
	s, err := snapshot.ReadStream("queues", strings.NewReader(objects))
	if err != nil {
		t.Fatal(err)
	}
	s.TakenAt = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	if err := s.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }, nil); err != nil {
		t.Fatal(err)
	}
	var out, warnings bytes.Buffer
	cmd := explain.NewCommand("test")
	cmd.SetArgs(append(args, "--snapshot", dir))
	cmd.SetOut(&out)
	cmd.SetErr(&warnings)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestOffline(t *testing.T) {
	got, err := run(t, "waits")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Workload ml/waits",
		"  position 0 in its ClusterQueue, 0 in LocalQueue main (0 is next), priority 0",
		"  WaitingForQuota: waits for quota in ClusterQueue gpus: needs 2 cpu of flavor h100: 1 of 4 free" + due,
		"  cpu of flavor h100: needs 2, 1 free, 1 missing",
		"    limit: nominalQuota of ClusterQueue gpus is 4",
		"    held by Workload ml/runs: 3 in ClusterQueue gpus",
		"  expected start: by 2026-01-01 12:00:00Z (60m after the snapshot)",
		"  any one of these would let it in now:",
		"    1. raise nominalQuota of cpu of flavor h100 in ClusterQueue gpus by 1, from 4 to 5",
		"    2. Workload ml/runs ends (3 cpu of flavor h100 in ClusterQueue gpus, expected by 2026-01-01 12:00:00Z)",
		"",
	}
	if diff := cmp.Diff(output.Wrap(strings.Join(want, "\n")), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for line := range strings.Lines(got) {
		if len(line) > 121 {
			t.Errorf("a line has %d characters: %s", len(line)-1, line)
		}
	}
	page, err := os.ReadFile("../../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n$ bin/tranche explain waits --snapshot cluster.tar.gz\n"+got+"```\n") {
		t.Errorf("docs/admin.md shows another answer: copy\n%s", got)
	}
}

// In a tree that is too large to be simulated, the answer has what follows from the objects, and says why it has no more.
func TestOfflineBeyondTheBound(t *testing.T) {
	got, err := run(t, "waits", "--max-workloads", "1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Workload ml/waits",
		"  position 0 in its ClusterQueue, 0 in LocalQueue main (0 is next), priority 0",
		"  WaitingForQuota: waits for quota in ClusterQueue gpus: needs 2 cpu of flavor h100: 1 of 4 free" + due,
		"  cpu of flavor h100: needs 2, 1 free, 1 missing",
		"    limit: nominalQuota of ClusterQueue gpus is 4",
		"    held by Workload ml/runs: 3 in ClusterQueue gpus",
		"What would let it in is not shown: the tree of ClusterQueue gpus has 2 quota Workloads, more than 1 (--max-workloads): no simulated answer",
		"",
	}
	if diff := cmp.Diff(output.Wrap(strings.Join(want, "\n")), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, err = run(t, "waits", "--max-workloads", "2"); err != nil || !strings.Contains(got, "any one of these would let it in now") {
		t.Errorf("%v\n%s", err, got)
	}
}

// A quota Workload that will be preempted shows when, and for which other one.
func TestNotice(t *testing.T) {
	const message = "The pods end at 2026-01-01T11:05:00Z, to accommodate a workload (UID: u9, JobUID: u8) due to prioritization in the ClusterQueue"
	const admitted = "  - {type: Admitted, status: \"True\", reason: Admitted, message: \"\", lastTransitionTime: \"2026-01-01T10:00:00Z\"}\n"
	for status, want := range map[string]string{"True": output.Wrap("\n  PreemptionPending: " + message + "\n"), "False": ""} {
		notice := fmt.Sprintf("  - {type: PreemptionPending, status: %q, reason: InClusterQueue, message: %q, lastTransitionTime: \"2026-01-01T10:50:00Z\"}\n", status, message)
		got, err := runOn(t, strings.Replace(queues, admitted, admitted+notice, 1), "runs", "-n", "ml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, "is admitted in ClusterQueue") || !strings.Contains(got, want) || strings.Contains(got, "PreemptionPending") != (want != "") {
			t.Errorf("with the condition %s:\n%s", status, got)
		}
	}
}

// Wide adds times, amounts and the name of the check.
func TestOfflineWide(t *testing.T) {
	for name, want := range map[string][]string{
		"runs": {
			"Workload ml/runs", "  created at 2026-01-01T10:00:00Z", "  holds 3 cpu of flavor h100 in ClusterQueue gpus",
			"  reserved its quota at 2026-01-01T10:00:00Z", "  admitted at 2026-01-01T10:00:00Z",
		},
		"waits": {"Workload ml/waits", "  created at 2026-01-01T10:10:00Z", "  first check that it does not pass: QuotaFits"},
	} {
		got, err := run(t, name, "-n", "ml", "-o", "wide")
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(got, "\n"); !cmp.Equal(want, lines[:len(want)]) {
			t.Errorf("%s: -want +got\n%s", name, cmp.Diff(want, lines))
		}
	}
}

// A queued Job is found by its name alone if no JobSet has it, and by its kind.
func TestOfflineJob(t *testing.T) {
	for _, name := range []string{"late", "job/late", "Jobs.batch/late"} {
		got, err := run(t, name, "-n", "other")
		if err != nil || !strings.HasPrefix(got, "Job other/late\n") || !strings.Contains(got, "\nWorkload other/runs\n") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	// Kueue names the Job as the owner of the Workload only.
	if got, err := run(t, "job/theirs", "-n", "other"); err != nil || !strings.Contains(got, "\nWorkload other/job-theirs-1a2b3\n") {
		t.Errorf("a Job of Kueue: %s, %v", got, err)
	}
	for name, want := range map[string]string{
		"job/waits": `namespace "ml" has no Job "waits"`, "jobset/waits": `has no JobSet "waits"`, "workload/unheld": `has no Workload "unheld"`,
		"pod/waits": `names the kind "pod": only a jobset, a job or a workload`,
	} {
		if _, err := run(t, name, "-n", "ml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A ClusterQueue that was taken over from Kueue is held for Kueue. Whether it is held for Tranche is another question.
func TestOfflineTakenOver(t *testing.T) {
	for annotations, want := range map[string]string{
		"{tranche.dev/engine: Tranche}":                                "any one of these would let it in now:",
		"{tranche.dev/engine: Tranche, tranche.dev/stop-policy: Hold}": "Suspended: ClusterQueue gpus is stopped (stopPolicy: Hold); metadata.annotations: ",
		"{tranche.dev/engine: Kueue}":                                  "Suspended: ClusterQueue gpus is stopped (stopPolicy: Hold); metadata.annotations: ",
	} {
		held := strings.Replace(queues, "annotations: {tranche.dev/reserve-after: 10m}", "annotations: "+annotations, 1)
		held = strings.Replace(held, "  queueingStrategy", "  stopPolicy: Hold\n  queueingStrategy", 1)
		if got, err := runOn(t, held, "waits", "-n", "ml"); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %v", annotations, got, err)
		}
	}
}

func TestOfflineJSON(t *testing.T) {
	got, err := run(t, "waits", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var report explain.Report
	if err := json.Unmarshal([]byte(got), &report); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	want := explain.Report{Kind: "Workload", Namespace: "ml", Name: "waits", Workloads: []explain.Workload{{
		Namespace: "ml", Name: "waits", Created: time.Date(2026, 1, 1, 10, 10, 0, 0, time.UTC),
		Position: &explain.Position{LocalQueue: "main"},
		Explanation: &visibilityapi.Explanation{
			Check: "QuotaFits", Reason: "WaitingForQuota", Message: "waits for quota in ClusterQueue gpus: needs 2 cpu of flavor h100: 1 of 4 free" + due,
			Alternatives: []visibilityapi.Alternative{{Shortages: []visibilityapi.Shortage{{
				Flavor: "h100", Resource: "cpu", Needed: resource.MustParse("2"), Free: resource.MustParse("1"), Missing: resource.MustParse("1"),
				Constraint: visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: "gpus", Limit: visibilityapi.NominalQuota, Amount: resource.MustParse("4")},
				Holders: []visibilityapi.Holder{{
					Kind: visibilityapi.Workload, Reference: visibilityapi.Reference{Namespace: "ml", Name: "runs"}, ClusterQueue: "gpus", Amount: resource.MustParse("3"),
				}},
			}}}},
		},
		ExpectedStart: &expected.Start{Certainty: simulator.By, By: &noon, Text: "by 2026-01-01 12:00:00Z (60m after the snapshot)"},
		LetIn: &explain.LetIn{Sets: []explain.Set{
			{Raises: []explain.Raise{{
				Kind: visibilityapi.ClusterQueue, Name: "gpus", Flavor: "h100", Resource: "cpu", Limit: visibilityapi.NominalQuota,
				From: resource.MustParse("4"), To: resource.MustParse("5"),
			}}},
			{Ends: []explain.End{{Namespace: "ml", Name: "runs", ClusterQueue: "gpus", ExpectedBy: &noon}}},
		}},
	}}}
	if diff := cmp.Diff(want, report, cmpopts.IgnoreUnexported(explain.Set{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestOfflineUnmanaged(t *testing.T) {
	got, err := run(t, "unheld")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"JobSet ml/unheld",
		"  has no quota Workload: spec.replicatedJobs[0].template.metadata.labels: the JobSet is not held, so its Jobs start without quota: it was" +
			" created before Tranche's admission policies were in force; delete it and submit it again",
		"",
	}
	if diff := cmp.Diff(output.Wrap(strings.Join(want, "\n")), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestOfflineRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`namespace "ml" has no JobSet, Job or quota Workload "x"`:                              {"x", "-n", "ml"},
		`namespace "ml" has no Job "late", but there is one in other: choose it with -n other`: {"job/late", "-n", "ml"},
		`the snapshot has no JobSet, Job or quota Workload "x" in any namespace`:               {"x"},
		`"runs" exists in the namespaces ml, other: choose one with -n`:                        {"runs"},
		`--until is -1h0m0s, must be positive`:                                                 {"waits", "--until", "-1h"},
		`--max-workloads is 0, must be positive`:                                               {"waits", "--max-workloads", "0"},
	} {
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) || exitcode.Of(err) != exitcode.BadInput {
			t.Errorf("%v: the error is %v, want %s", args, err, want)
		}
	}
}
