package explain_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/snapshot"
)

// staged is a JobSet for which the manager has written why its stage waits, and when it is expected to start.
const staged = queues + `
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {namespace: ml, name: tune, uid: u8, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicatedJobs: [{name: train, replicas: 1, template: {spec: {template: {spec: {containers: [{name: c}]}}}}}]
status:
  conditions:
  - {type: StageAdmitted, status: "False", reason: WaitingForQuota, message: "Stage \"train\" waits for quota", lastTransitionTime: "2026-01-01T10:20:00Z"}
  - type: StartExpected
    status: "True"
    reason: By
    message: 'Stage "train": expected to start by 2026-01-01T12:00:00Z. Computed at 2026-01-01T10:59:00Z. Position 0 in ClusterQueue "gpus" (0 is next)'
    lastTransitionTime: "2026-01-01T10:59:00Z"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  namespace: ml
  name: jobset-tune-train-1a2b3
  uid: u9
  resourceVersion: "1"
  creationTimestamp: "2026-01-01T10:20:00Z"
  labels: {tranche.dev/jobset: tune, tranche.dev/stage: train, kueue.x-k8s.io/job-uid: u8}
spec:
  active: true
  queueName: main
  podSets: [{name: train, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
status:
  conditions:
  - {type: QuotaReserved, status: "False", reason: Pending, message: "waits", lastTransitionTime: "2026-01-01T10:20:00Z"}
  - {type: tranche.dev/Waiting, status: "True", reason: WaitingForQuota, message: "waits for quota in ClusterQueue gpus", lastTransitionTime: "2026-01-01T10:20:00Z"}
`

// TestHalfSnapshot explains from directories that lack a file: without a kind that decides admission, what the manager has written remains.
func TestHalfSnapshot(t *testing.T) {
	const again = "is missing; copy all files of the snapshot, or take the snapshot again\n"
	const onlyWritten = "tranche explain shows only what the manager has written to JobSets and quota Workloads, and tranche lint does not check references to these objects; " +
		"there are no reasons, positions and plans\n"
	for name, c := range map[string]struct {
		file, subject string
		want, says    string
		code          int
	}{
		"ClusterQueues": {
			"clusterqueues.kueue.x-k8s.io", "tune",
			"JobSet ml/tune\n  WaitingForQuota: Stage \"train\" waits for quota\nWorkload ml/jobset-tune-train-1a2b3 (stage train of JobSet tune)\n" +
				"  WaitingForQuota: waits for quota in ClusterQueue gpus\n  expected start: by 2026-01-01 12:00:00Z\n" +
				"Queue positions and holders of quota are not shown: the snapshot lacks clusterqueues\n",
			"without clusterqueues: " + onlyWritten, 0,
		},
		"quota Workloads": {
			"workloads.kueue.x-k8s.io", "tune", "JobSet ml/tune\n  WaitingForQuota: Stage \"train\" waits for quota\n", "without workloads: " + onlyWritten, 0,
		},
		"quota Workloads, and the JobSet has no condition": {
			"workloads.kueue.x-k8s.io", "unheld", "JobSet ml/unheld\n  its quota Workloads are not known: the snapshot lacks workloads\n", "without workloads: " + onlyWritten, 0,
		},
		"quota Workloads, and there is no JobSet": {
			"workloads.kueue.x-k8s.io", "waits",
			`the snapshot has no JobSet, Job or quota Workload "waits" in any namespace: correct the name, or take a snapshot that has it; the snapshot lacks workloads`,
			"without workloads: " + onlyWritten, exitcode.BadInput,
		},
		"Jobs": {
			"jobs.batch", "waits", strings.Join([]string{
				"Workload ml/waits",
				"  position 0 in its ClusterQueue, 0 in LocalQueue main (0 is next), priority 0",
				"  WaitingForQuota: waits for quota in ClusterQueue gpus: needs 2 cpu of flavor h100: 1 of 4 free; due since 2026-01-01T10:20:00Z: quota that is released is kept for it, " +
					"up to 2 cpu of flavor h100; it starts by 2026-01-01T12:00:00Z",
				"  cpu of flavor h100: needs 2, 1 free, 1 missing",
				"    limit: nominalQuota of ClusterQueue gpus is 4",
				"    held by Workload ml/runs: 3 in ClusterQueue gpus",
				"  expected start: by 2026-01-01 12:00:00Z (60m after the snapshot)",
				"  any one of these would let it in now:",
				"    1. raise nominalQuota of cpu of flavor h100 in ClusterQueue gpus by 1, from 4 to 5",
				"    2. Workload ml/runs ends (3 cpu of flavor h100 in ClusterQueue gpus, expected by 2026-01-01 12:00:00Z)\n",
			}, "\n"),
			"without jobs: answers about the quota Workloads that exist are right for now, but not when their stages end and which follow\n", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := snapshot.ReadStream("queues", strings.NewReader(staged))
			if err != nil {
				t.Fatal(err)
			}
			s.TakenAt = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
			dir := t.TempDir()
			if err := s.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, c.file+".jsonl")); err != nil {
				t.Fatal(err)
			}
			var out, warnings bytes.Buffer
			cmd := explain.NewCommand("test")
			cmd.SetArgs([]string{c.subject, "--snapshot", dir})
			cmd.SetOut(&out)
			cmd.SetErr(&warnings)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			got, want := "", output.Wrap(c.want)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				if got, want = err.Error(), c.want; exitcode.Of(err) != c.code {
					t.Errorf("exit code %d, want %d", exitcode.Of(err), c.code)
				}
			}
			if diff := cmp.Diff(want, out.String()+got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if want := "missing: " + c.file + ": " + c.file + ".jsonl " + again + c.says; !strings.HasPrefix(warnings.String(), want) {
				t.Errorf("warnings %q, want %q", warnings.String(), want)
			}
		})
	}
}
