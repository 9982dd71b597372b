package events_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
		{"JobSet", events.JobSetStopped(2)},
		{"JobSet", events.PodEnded("train-node-0-0-x7f2p", "no Job of the JobSet controls it, and its Job has replaced it")},
		{"JobSet", events.StageWaiting("WaitingForQuota", `Waiting to admit stage 2/3 "trainer": waiting for 8 nvidia.com/gpu of flavor a100: 5 of 16 free`)},
		{"JobSet", events.StageTooLarge("ExceedsMaxQuota", `Waiting to admit stage 2/3 "trainer": can never fit (would fit with at most 12 of 16 pods of trainer): `+
			`pod set trainer in ClusterQueue research: needs 16 nvidia.com/gpu of flavor a100, but the quota is 12`)},
		{"JobSet", events.AdmittedWhole("ClusterQueue research has no AdmissionCheck with controllerName tranche.dev/stage-safety for all of its flavors: add one to spec.admissionChecksStrategy")},
		{"JobSet", events.StageReleased("trainer", "research", "15 nvidia.com/gpu of flavor a100", 3)},
		{"JobSet", events.StageReleasedUnqueued("trainer", 3)},
		{"JobSet", events.StageReady("trainer")},
		{"JobSet", events.StageFinished("trainer", `All Jobs of stage "trainer" have succeeded`)},
		{"JobSet", events.StageReserved("trainer", "research", "15 nvidia.com/gpu of flavor a100", []string{"budget"})},
		{"JobSet", events.StageEvicted("trainer", "15 nvidia.com/gpu of flavor a100", "Preempted", `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"JobSet", events.StageGrows("trainer", 2)},
		{"JobSet", events.JobSkipped("tune-init-0")},
		{"JobSet", events.JobSetPaused("ps.worker")},
		{"JobSet", events.JobSetDeleted("train-trainer-5a7d3", time.Hour)},
		{"JobSet", events.StageResized("trainer", 1, 5)},
		{"JobSet", events.GrowthRequeued("trainer", "Exceeded the PodsReady timeout of 30m0s (waitForPodsReady.timeout): 1 of 2 pods were not ready: 1 without a node")},
		{"JobSet", events.StageRequeued("trainer", 0, `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"JobSet", events.StageRequeued("trainer", 2, `Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"JobSet", events.GangBlocked(`3 of 4 pods of gang "train-trainer-0" have no node: 0/4 nodes are available; add nodes that all of them fit on at once, or suspend the JobSet so that others can use its quota`)},
		{"JobSet", events.SpecPruned("spec.startupPolicy.rules: lost when another CRD of JobSets was applied over Tranche's. The fields are recorded, and count until the JobSet is submitted again")},
		{"JobSet", events.PriorityKept(`Label kueue.x-k8s.io/priority-class names WorkloadPriorityClass "urgent", which does not exist: the JobSet keeps priority 0; create the class or name another`)},
		{"JobSet", events.StageSuspended("trainer")},
		{"JobSet", events.StageUnpaid("trainer")},
		{"JobSet", events.StageClosed("trainer")},
		{"JobSet", events.StageReopened("trainer")},
		{"JobSet", events.Misconfigured("the JobSet names no LocalQueue: set the label kueue.x-k8s.io/queue-name")},
		{"JobSet", events.CheckpointIgnored("metadata.annotations[tranche.dev/checkpointed-at]: 2026-01-02T16:04:05Z is in the future, and has no effect until then; write the time at which the work was saved")},
		{"JobSet", events.JobRefused(`the Job "x" stays held: it can have 3 pods at once, and quota is charged for 2; delete the Job`)},
		{"JobSet", events.GroupReleased(64)},
		{"JobSet", events.GroupTimedOut(37, 64)},
		{"JobSet", events.GroupNotKept(`ConfigMap "train-group-scheduling" exists and is not owned by the JobSet: give it another name`)},
		{"Job", events.JobStarted("research")},
		{"Job", events.JobAwaitsPods()},
		{"Job", events.JobAdopted("research")},
		{"JobSet", events.JobSetAdopted("research")},
		{"JobSet", events.AdoptedRequeued("The ClusterQueue is stopped")},
		{"JobSet", events.AdoptedStopped("The workload is deactivated")},
		{"Job", events.JobStopped("The ClusterQueue is stopped")},
		{"Job", events.JobRequeued("The ClusterQueue is stopped")},
		{"Job", events.JobSuspended()},
		{"Job", events.JobGrows(2)},
		{"Job", events.JobResized(5)},
		{"Job", events.JobFinished("Job finished successfully")},
		{"Job", events.JobDeleted("job-train-5a7d3", time.Hour)},
		{"quota Workload", events.QuotaReserved("research", 12*time.Second)},
		{"quota Workload", events.Pending("Pending", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 5 more needed")},
		{"quota Workload", events.Admitted("research", 90*time.Second)},
		{"quota Workload", events.Evicted("EvictedDueToPodsReadyTimeout", `Exceeded the PodsReady timeout of 30m0s (waitForPodsReady.timeout): 1 of 3 pods were not ready: 1 with container "main" waiting (ImagePullBackOff)`)},
		{"quota Workload", events.Preempted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"quota Workload and its owner", events.PreemptionPending(`The pods end at 2026-01-02T15:04:05Z, to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"quota Workload and its owner", events.PreemptionWithdrawn("The preemptor no longer waits for the quota")},
		{"quota Workload", events.PreemptedWorkload(`Workload "patient"`, "88d3", "ml")},
		{"quota Workload", events.AdmissionGated("example.com/budget")},
		{"quota Workload", events.AdmissionGateCleared()},
		{"quota Workload", events.AdmissionCheckRejected(`AdmissionCheck in state Rejected: "budget" (no money left)`)},
		{"quota Workload", events.RequeuingLimitExceeded(3)},
		{"quota Workload", events.MaximumExecutionTimeExceeded(3600)},
		{"quota Workload", events.Requeued("The back-off has expired")},
		{"PodGroup, pods", events.GangStatus("GangWaiting", "Gather", "The gang requests no quota yet: it has fewer than the 5 pods that must start together")},
		{"PodGroup, pods", events.GangWarning("Misconfigured", "Check", `PodGroup "train" of scheduling.x-k8s.io does not exist in namespace "ml": create it (its API must be served), or remove the name of the group from the pods`)},
		{"PodGroup, pods", events.GangWarning("GangTimedOut", "TimeOut", `The gang did not start within its waiting time: pod "train-0" and all other pods with annotation gang.scheduling.koordinator.sh/timeout=true are not admitted: recreate the pods, or remove the annotation`)},
		{"PodGroup, pods", events.GangStatus("GangEvicted", "Evict", `The gang is evicted: The ClusterQueue is stopped`)},
		{"PodGroup, pods", events.GangWarning("Unschedulable", "Run", `The gang has started in ClusterQueue "research", but only 3 of its 4 required pods run, wait or have succeeded: recreate the others, or restart the gang`)},
		{"PodGroup, pods", events.GangStatus("GangStarted", "Start", `The gang is admitted in ClusterQueue "research" and has started`)},
		{"PodGroup, pods", events.GangFinished("All pods of the gang have succeeded")},
		{"pod", events.PodEvicted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"pod", events.BarePodEvicted(`Preempted to accommodate a workload (UID: 5a1f, JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /research/ml; preemptee path: /research/ml; preemptor: JobSet "urgent"`)},
		{"ResourceFlavor", events.FlavorInUse([]string{"research", "serving"})},
		{"ClusterQueue", events.TakenOverInactive("it is being deleted")},
		{"ClusterQueue", events.TakeoverBlocked("ClusterQueue research: spec.stopPolicy is None, so that Kueue admits in it; set it to Hold")},
		{"ClusterQueue", events.TakenOver(2)},
		{"ClusterQueue", events.TakenOverUnchecked(2, "v0.19.x")},
		{"ClusterQueue", events.HandedBack()},
		{"ConfigMap tranche-guards", events.KueueMissing()},
		{"ConfigMap tranche-guards", events.JobSetFieldsMissing([]string{"spec.startupPolicy.rules", "spec.gangConfig"})},
		{"ConfigMap tranche-guards", events.KueueUntested("v0.20.1", "v0.19.x")},
		{"JobSet, Job, pod of a gang", events.AcceleratorsUncharged("16 nvidia.com/gpu", "8")},
		{"ClusterQueue", events.LedgerMismatch("8 nvidia.com/gpu of flavor a100", "quota Workload team-a/train holds 16", "the charge was corrected")},
	}
}

var update = flag.Bool("update", false, "rewrite docs/reference/events.md")

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
		t.Errorf("docs/reference/events.md does not match the code, run make generate (-code +file):\n%s", diff)
	}
}

// Each exported function of the package that returns an Event, and each reason that the life cycle of a gang of pods reports, has a row in
// docs/reference/events.md.
func TestReferenceIsComplete(t *testing.T) {
	test := parse(t, "events_test.go")
	called := map[string]bool{}
	ast.Inspect(test, func(node ast.Node) bool {
		if f, ok := node.(*ast.SelectorExpr); ok {
			called[f.Sel.Name] = true
		}
		return true
	})
	for _, file := range sources(t, ".") {
		for _, decl := range parse(t, file).Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Name.IsExported() && f.Recv == nil && f.Type.Results != nil && types.ExprString(f.Type.Results.List[0].Type) == "Event" && !called[f.Name.Name] {
				t.Errorf("%s: %s has no row: add an example to all()", file, f.Name.Name)
			}
		}
	}
	reasons := map[string]bool{}
	for _, e := range all() {
		reasons[e.Reason] = true
	}
	found := 0
	for _, file := range append(sources(t, "../../lifecycle/podgang"), sources(t, "../podgang")...) {
		for _, reason := range messageReasons(parse(t, file)) {
			if found++; !reasons[reason] {
				t.Errorf("%s: the reason %s of a gang has no row: add an example to all()", file, reason)
			}
		}
	}
	if found == 0 {
		t.Error("found no podgang.Message with a reason")
	}
}

// messageReasons returns the reasons of the values of type podgang.Message in a file.
func messageReasons(file *ast.File) (reasons []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		message, ok := node.(*ast.CompositeLit)
		if !ok || message.Type == nil || len(message.Elts) == 0 || !slices.Contains([]string{"Message", "podgang.Message"}, types.ExprString(message.Type)) {
			return true
		}
		reason := message.Elts[0]
		if field, ok := reason.(*ast.KeyValueExpr); ok {
			reason = field.Value
		}
		if text, err := strconv.Unquote(types.ExprString(reason)); err == nil {
			reasons = append(reasons, text)
		}
		return true
	})
	return reasons
}

// sources returns the Go files of a directory, without tests.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
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
