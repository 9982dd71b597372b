package simulator

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// staleKey is the JobSet of the tests in this file.
var staleKey = types.NamespacedName{Namespace: "default", Name: "a"}

// stale returns the first situation of a world whose cache lags, after some moves.
func stale(t *testing.T, stages string, moves ...string) *situation {
	t.Helper()
	w := &world{steps: true, budget: [adversities]int8{lags: 1}, text: "queue ml gpu=2\nsubmit a queue=ml stages=" + stages + "\n"}
	x, err := w.begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range moves {
		if strings.HasPrefix(text, "resize ") {
			x.play(text)
			continue
		}
		all := x.moves()
		i := slices.IndexFunc(all, func(m move) bool { return strings.HasPrefix(m.text, "# "+text) })
		if i < 0 {
			t.Fatalf("%q is not possible", text)
		}
		x.make(all[i])
	}
	return x
}

// reconcileStale reconciles the JobSet while the cache lacks the last change of an object of a kind.
func (x *situation) reconcileStale(t *testing.T, kind string) {
	t.Helper()
	changed := x.Changed(staleKey)
	i := slices.IndexFunc(changed, func(name cluster.ObjectName) bool { return name.Kind == kind })
	if i < 0 {
		t.Fatalf("no %s has changed", kind)
	}
	x.ReconcileStale(staleKey, changed[i])
}

// TestStaleResizeOfAdmittedWorkload shows that a quota Workload keeps its pod sets if it was admitted after the manager has read it: the write has
// its resource version as precondition.
func TestStaleResizeOfAdmittedWorkload(t *testing.T) {
	x := stale(t, "train(2*gpu=1)", "the manager reconciles quota Workload", "the engine decides", "the manager writes: admit", "resize a/train pods=1")
	x.reconcileStale(t, "quota Workload")
	if got := cluster.Counts(x.WorkloadsOfJobSet(staleKey)[0].Spec.PodSets); got != "2" {
		t.Errorf("the admitted quota Workload asks for %s pods, want 2", got)
	}
}

// TestStaleReleaseOfResizedJob shows that a Job stays held if it got more pods after the manager has read it: the write has its spec as
// precondition.
func TestStaleReleaseOfResizedJob(t *testing.T) {
	x := stale(t, "train(gpu=1)", "the manager reconciles quota Workload", "the engine decides", "the manager writes: admit", "resize a/train pods=2",
		"the JobSet controller reconciles a")
	x.reconcileStale(t, "Job")
	for range 2 {
		for _, job := range x.JobsOf(x.JobSets[staleKey].UID) {
			x.jobController.Reconcile(job)
		}
	}
	if wrong := x.unpaidPods(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestStaleRemovalOfFinalizer shows that a quota Workload keeps its finalizer if it has replaced another of its name that was deleted: the write has
// the UID as precondition.
func TestStaleRemovalOfFinalizer(t *testing.T) {
	x := stale(t, "train(gpu=1)", "the manager reconciles quota Workload", "the Job controller reconciles")
	x.DeleteWorkload(x.WorkloadsOfJobSet(staleKey)[0])
	deleted := x.WorkloadsOfJobSet(staleKey)[0]
	for range 2 {
		x.ReconcileJobSet(staleKey)
	}
	now := x.WorkloadsOfJobSet(staleKey)
	if len(now) != 1 || now[0].Name != deleted.Name || now[0].UID == deleted.UID {
		t.Fatalf("quota Workload %s is not recreated", deleted.Name)
	}
	x.PutWorkload(now[0].DeepCopy())
	for name := range x.Previous[staleKey] {
		x.Previous[staleKey][name] = cluster.Version{Workload: deleted}
	}
	x.reconcileStale(t, "quota Workload")
	if now := x.WorkloadsOfJobSet(staleKey); len(now[0].Finalizers) == 0 {
		t.Error("the quota Workload has lost its finalizer")
	}
}
