package events_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	k8sevents "k8s.io/client-go/tools/events"

	"github.com/tranche-dev/tranche/controllers/events"
)

func all() []struct {
	on string
	events.Event
} {
	return []struct {
		on string
		events.Event
	}{
		{"JobSet", events.JobSetStarted()},
		{"JobSet", events.JobSetStopped(2)},
		{"JobSet", events.PodEnded("train-node-0-0-x7f2p", "no Job of the JobSet controls it, and its Job has replaced it")},
		{"JobSet", events.StageWaiting("WaitingForQuota", `Waiting to admit stage 2/3 "trainer": waiting for 8 nvidia.com/gpu of flavor a100: 5 of 16 free`)},
		{"JobSet", events.StageTooLarge("ExceedsMaxQuota", `Waiting to admit stage 2/3 "trainer": can never fit (would fit with at most 12 of 16 pods of trainer): `+
			`pod set trainer in ClusterQueue research: needs 16 nvidia.com/gpu of flavor a100, of which the quota is 12`)},
		{"JobSet", events.StageOpened("trainer")},
		{"JobSet", events.StageAdmitted("trainer", "research", "15 nvidia.com/gpu of flavor a100")},
		{"JobSet", events.StageReleased("trainer", "research", 3)},
		{"JobSet", events.StageReady("trainer")},
		{"JobSet", events.StageFinished("trainer", `All Jobs of stage "trainer" have succeeded`)},
		{"JobSet", events.StageReserved("trainer", "research", "15 nvidia.com/gpu of flavor a100", []string{"budget"})},
		{"JobSet", events.StageEvicted("trainer", "15 nvidia.com/gpu of flavor a100", "Preempted", `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml`)},
		{"JobSet", events.StageGrows("trainer", 2)},
		{"JobSet", events.JobSkipped("tune-init-0")},
		{"JobSet", events.JobSetPaused("ps.worker")},
		{"JobSet", events.JobSetDeleted("train-trainer-5a7d3", time.Hour)},
		{"JobSet", events.StageResized("trainer", 1, 5)},
		{"JobSet", events.GrowthRequeued("trainer", "Exceeded the PodsReady timeout of 30m0s (waitForPodsReady.timeout): 1 of 2 pods were not ready: 1 without a node")},
		{"JobSet", events.StageRequeued("trainer", 0, `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml`)},
		{"JobSet", events.StageRequeued("trainer", 2, `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml`)},
		{"JobSet", events.GangBlocked(`3 of 4 pods of gang "train-trainer-0" have no node: 0/4 nodes are available; add nodes that all of them fit on at once, or suspend the JobSet so that others can use its quota`)},
		{"JobSet", events.PriorityKept(`Label kueue.x-k8s.io/priority-class names WorkloadPriorityClass "urgent", which does not exist: the JobSet keeps priority 0; create the class or name another`)},
		{"JobSet", events.StageSuspended("trainer")},
		{"JobSet", events.StageReopened("trainer")},
		{"JobSet", events.Misconfigured("the JobSet names no LocalQueue: set the label kueue.x-k8s.io/queue-name")},
		{"JobSet", events.JobRefused(`the Job "x" stays held: it can have 3 pods at once, its JobSet gives it 2; delete the Job`)},
		{"JobSet", events.GroupReleased(64)},
		{"JobSet", events.GroupTimedOut(37, 64)},
		{"JobSet", events.GroupNotKept(`ConfigMap "train-group-scheduling" was made by somebody else: give it another name`)},
		{"quota Workload", events.QuotaReserved("research", 12*time.Second)},
		{"quota Workload", events.Pending("Pending", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 5 more needed")},
		{"quota Workload", events.Admitted("research", 90*time.Second)},
		{"quota Workload", events.Evicted("EvictedDueToPodsReadyTimeout", `Exceeded the PodsReady timeout of 30m0s (waitForPodsReady.timeout): 1 of 3 pods were not ready: 1 with container "main" waiting (ImagePullBackOff)`)},
		{"quota Workload", events.Preempted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: Workload "urgent"`)},
		{"quota Workload", events.PreemptedWorkload(`Workload "patient"`, "88d3", "ml")},
		{"quota Workload", events.AdmissionGated("example.com/budget")},
		{"quota Workload", events.AdmissionGateCleared()},
		{"quota Workload", events.AdmissionCheckRejected(`AdmissionCheck in state Rejected: "budget" (no money left)`)},
		{"quota Workload", events.RequeuingLimitExceeded(3)},
		{"quota Workload", events.MaximumExecutionTimeExceeded(3600)},
		{"quota Workload", events.Requeued("The back-off is over")},
		{"PodGroup, pods", events.GangStatus("GangWaiting", "Gather", "Nothing is asked for before all pods are there that start together: the gang has fewer than 5")},
		{"PodGroup, pods", events.GangWarning("Misconfigured", "Check", `there is no PodGroup "train" of scheduling.x-k8s.io in namespace "ml": create it (its API must be served), or take the pods out of the gang`)},
		{"PodGroup, pods", events.GangWarning("GangTimedOut", "TimeOut", `The gang did not start within its waiting time: pod "train-0" and all others with the annotation gang.scheduling.koordinator.sh/timeout=true are not admitted; recreate them, or remove the annotation`)},
		{"PodGroup, pods", events.GangStatus("GangStarted", "Start", `The gang is admitted in ClusterQueue "research" and has started`)},
		{"PodGroup, pods", events.GangFinished("All pods of the gang have succeeded")},
		{"pod", events.PodEvicted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml`)},
		{"pod", events.BarePodEvicted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml`)},
		{"ResourceFlavor", events.FlavorInUse([]string{"research", "serving"})},
		{"ClusterQueue", events.LedgerMismatch("8 nvidia.com/gpu of flavor a100", "quota Workload team-a/train holds 16", "they have been corrected")},
	}
}

var update = flag.Bool("update", false, "write docs/reference/events.md anew")

// TestReference keeps docs/reference/events.md the list of all Events.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Events\n\nGenerated by `make generate`. The names and amounts are examples.\n\n| on | type | reason | message |\n|---|---|---|---|\n")
	for _, e := range all() {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", e.on, e.Type, e.Reason, e.Message)
	}
	file := filepath.Join("..", "..", "docs", "reference", "events.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/reference/events.md is not what the code says, run make generate (-code +file):\n%s", diff)
	}
}

// The API server refuses an Event whose note is longer.
func TestEmitCutsLongNotes(t *testing.T) {
	recorder := k8sevents.NewFakeRecorder(1)
	events.Misconfigured("x"+strings.Repeat("é", 2000)).Emit(recorder, nil)
	got := <-recorder.Events
	if note := got[strings.Index(got, "xé"):]; len(note) < 1000 || len(note) > 1024 || !utf8.ValidString(note) {
		t.Errorf("the note has %d bytes, valid: %t; want about 1024 valid bytes", len(note), utf8.ValidString(note))
	}
}
