package dashboard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// holding returns a quota Workload that holds accelerators in ClusterQueue q, with further conditions.
func holding(namespace, name string, gpus int64, conditions ...metav1.Condition) *kueue.Workload {
	w := workload(namespace, name, "lq")
	admit(w, "q", "f", gpus)
	w.Status.Conditions = append(w.Status.Conditions, conditions...)
	return w
}

func reserving(namespace, name string, gpus int64) *kueue.Workload {
	w := holding(namespace, name, gpus)
	w.Status.Conditions = w.Status.Conditions[:1]
	return w
}

func ready() metav1.Condition {
	return condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, "Started", 150)
}

func evicted() metav1.Condition {
	return condition(kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, 160)
}

// overviewOf renders an overview of all: each accelerator with its parts now, and the users.
func overviewOf(t *testing.T, m *dashboard.Model, v dashboard.Viewer) []string {
	t.Helper()
	a, isSeen := m.Overview(v, at(1000))
	if !isSeen {
		t.Fatal("the overview is not shown")
	}
	last := func(values []*float32) any {
		if values == nil {
			return "?"
		}
		return *values[len(values)-1]
	}
	var lines []string
	for _, x := range a.Accelerators {
		lines = append(lines, fmt.Sprint(x.Resource, " ", x.Flavor, " quota ", last(x.Quota), " in use ", last(x.InUse), " not ready ", last(x.NotReady), " checks ",
			last(x.AwaitsChecks), " later ", last(x.LaterStages), " evicting ", last(x.Evicting)))
	}
	for _, u := range a.Users {
		lines = append(lines, fmt.Sprint(u.Namespace, " ", u.Held, " idle ", u.Idle))
	}
	return append(lines, fmt.Sprint("hidden ", a.Hidden))
}

// What is held has one cause each, and the sums follow each change.
func TestOverviewOfAccelerators(t *testing.T) {
	m := dashboard.New()
	m.Observe(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: kueue.CohortSpec{ResourceGroups: clusterQueue("", "", "4").Spec.ResourceGroups}})
	queue := clusterQueue("q", "c", "32")
	queue.Spec.ResourceGroups = append(queue.Spec.ResourceGroups, kueue.ResourceGroup{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors:          []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU}}}},
	})
	for _, object := range []metav1.Object{
		using(queue, "26", "19"), clusterQueue("other", "c", "8"), localQueue("a", "lq", "q"), localQueue("b", "lq", "q"),
		holding("a", "running", 8, ready()), holding("a", "starting", 6), holding("b", "leaving", 5, ready(), evicted()), reserving("b", "reserved", 3),
	} {
		m.Observe(object)
	}
	b, a := "b [{nvidia.com/gpu  8}] idle []", "a [{nvidia.com/gpu  14}] idle [{nvidia.com/gpu  6}]"
	want := []string{"nvidia.com/gpu f quota 44 in use 8 not ready 6 checks 3 later 4 evicting 5", a, b, "hidden []"}
	if diff := cmp.Diff(want, overviewOf(t, m, dashboard.Viewer{})); diff != "" {
		t.Error(diff)
	}
	onlyB := dashboard.Viewer{Namespace: func(name string) bool { return name == "b" }}
	if diff := cmp.Diff([]string{want[0], b, "hidden [{nvidia.com/gpu  14}]"}, overviewOf(t, m, onlyB)); diff != "" {
		t.Errorf("of a viewer of b: %s", diff)
	}
	m.Observe(holding("a", "starting", 6, ready()))
	m.Forget(workload("b", "leaving", "lq"))
	m.Observe(using(queue, "21", "14"))
	want = []string{
		"nvidia.com/gpu f quota 44 in use 14 not ready 0 checks 3 later 4 evicting 0", "a [{nvidia.com/gpu  14}] idle []", "b [{nvidia.com/gpu  3}] idle []", "hidden []",
	}
	if diff := cmp.Diff(want, overviewOf(t, m, dashboard.Viewer{})); diff != "" {
		t.Errorf("after changes: %s", diff)
	}
	// Quota Workloads that are newer than the status do not make the parts larger than the sum.
	m.Observe(using(queue, "2", "2"))
	m.Observe(holding("a", "starting", 6))
	if got, want := overviewOf(t, m, dashboard.Viewer{})[0], "nvidia.com/gpu f quota 44 in use 0 not ready 2 checks 0 later 0 evicting 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m.Observe(using(queue, "21", "14"))
	m.LacksWorkloads()
	if got, want := overviewOf(t, m, dashboard.Viewer{})[0], "nvidia.com/gpu f quota 44 in use 21 not ready ? checks ? later ? evicting ?"; got != want {
		t.Errorf("without all quota Workloads: %s, want %s", got, want)
	}
}

// The overview has about as many points for an hour as for a day, and none from before the accelerator was observed.
func TestOverviewOfADay(t *testing.T) {
	m := dashboard.New()
	m.Sample(at(0))
	m.Observe(using(clusterQueue("q", "", "8"), "3", "3"))
	minute := 0
	for _, hours := range []int{1, 3, 24, 30} {
		for ; minute < hours*60; minute++ {
			m.Sample(at(60 * (minute + 1)))
		}
		a, _ := m.Overview(dashboard.Viewer{}, at(60*minute+30))
		x := a.Accelerators[0]
		if n := len(a.Times); n < min(60*hours, 70) || n > 146 || len(x.Quota) != n || len(x.InUse) != n || len(x.Evicting) != n {
			t.Fatalf("after %d hours: %d times, %d values", hours, n, len(x.Quota))
		}
		if span := a.Times[len(a.Times)-1] - a.Times[0]; span < int64(min(hours, 24)*3600-700) || span > 24*3600+100 {
			t.Errorf("after %d hours: %d seconds", hours, span)
		}
		if isNew := hours <= 24; isNew != (x.InUse[0] == nil) || *x.InUse[1] != 3 {
			t.Errorf("after %d hours: the first values are %v", hours, x.InUse[:2])
		}
	}
}

// The rows are counted by state, and what waits longest comes first.
func TestOverviewOfWaiting(t *testing.T) {
	m := dashboard.New()
	objects := []metav1.Object{clusterQueue("q", "", "8"), localQueue("a", "lq", "q"), localQueue("b", "lq", "q"), holding("a", "running", 8, ready())}
	for i := range 8 {
		w := workload([]string{"a", "b"}[i%2], fmt.Sprintf("w%d", i), "lq")
		w.CreationTimestamp = metav1.NewTime(at(100 - 10*i))
		objects = append(objects, w)
	}
	tooLarge, urged := jobSet("a", "too-large", "train"), jobSet("a", "urged", "train")
	tooLarge.Status.Conditions = waitsFor("ExceedsMaxQuota", 1)
	urged.Status.Conditions = append(runsSince(1), notice(metav1.ConditionTrue))
	for _, object := range append(objects, tooLarge, urged, jobSet("b", "waits", "train")) {
		m.Observe(object)
	}
	names := func(v dashboard.Viewer) (all []string) {
		a, _ := m.Overview(v, at(1000))
		for _, row := range a.Waiting {
			all = append(all, fmt.Sprint(row.Namespace, "/", row.Name, " in ", row.ClusterQueue, " ", *row.Position))
		}
		return all
	}
	if got, want := names(dashboard.Viewer{}), []string{"b/w7 in q 0", "a/w6 in q 1", "b/w5 in q 2", "a/w4 in q 3", "b/w3 in q 4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	m.Forget(workload("a", "w6", "lq"))
	if got, want := names(dashboard.Viewer{Namespace: func(name string) bool { return name == "a" }}), []string{"a/w4 in q 2", "a/w2 in q 4", "a/w0 in q 6"}; !slices.Equal(got, want) {
		t.Errorf("of a viewer of a: %q, want %q", got, want)
	}
	a, _ := m.Overview(dashboard.Viewer{}, at(1000))
	if a.Workloads[dashboard.Pending] != 7 || a.Workloads[dashboard.Running] != 1 || a.JobSets[dashboard.JobSetWaiting] != 2 || a.JobSets[dashboard.JobSetAdmitted] != 1 {
		t.Errorf("%v, %v", a.Workloads, a.JobSets)
	}
	if a.NeedChange != 1 || a.HaveNotice != 1 {
		t.Errorf("%d need a change, %d have notice", a.NeedChange, a.HaveNotice)
	}
}

// Starts, ends and preemptions are listed in the order of time, as long as they are to be expected.
func TestOverviewOfChanges(t *testing.T) {
	m := dashboard.New()
	starts := func(namespace, name string, e jobsetstatus.ExpectedStart) []metav1.Object {
		js := expect(jobSet(namespace, name, "train"), e)
		return []metav1.Object{js, stageWorkload(js, "train")}
	}
	limited := holding("a", "limited", 2, ready())
	limited.Spec.MaximumExecutionTimeSeconds, limited.Status.AccumulatedPastExecutionTimeSeconds = new(int32(3600)), new(int32(600))
	noticed := notice(metav1.ConditionTrue)
	noticed.LastTransitionTime = metav1.NewTime(at(101)) // after its quota was reserved
	noticed.Message = quotaworkload.NoticeMessage(at(150), "urgent")
	urged := holding("b", "urged", 3, ready(), noticed)
	urged.Spec.MaximumExecutionTimeSeconds = new(int32(7200))
	queued := workload("a", "queued", "lq")
	queued.Spec.MaximumExecutionTimeSeconds = new(int32(60))
	objects := []metav1.Object{clusterQueue("q", "", "8"), localQueue("a", "lq", "q"), localQueue("b", "lq", "q"), limited, urged, queued}
	objects = append(objects, starts("a", "soon", jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartBy, By: at(9000), About: at(90)})...)
	objects = append(objects, starts("b", "late", jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartBy, By: at(5000)})...)
	objects = append(objects, starts("b", "unknown", jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartUnknown, Basis: "no limit"})...)
	for _, object := range objects {
		m.Observe(object)
	}
	changes := func(v dashboard.Viewer, now time.Time) (all []string, overdue int) {
		a, _ := m.Overview(v, now)
		for _, c := range a.Changes {
			all = append(all, fmt.Sprint(c.At-start.Unix(), " ", c.Kind, " ", c.Namespace, "/", strings.TrimPrefix(c.Name+c.Owner, c.Owner+"-train"), " ", c.Stage, " ", c.Amounts, " in ", c.ClusterQueue))
		}
		return all, a.Overdue
	}
	soon, preempted := "90 Start a/soon train [] in q", "150 Preemption b/urged  [{nvidia.com/gpu f 3}] in q"
	late, ends := "5000 Start b/late train [] in q", fmt.Sprint(100+3000, " End a/limited  [{nvidia.com/gpu f 2}] in q")
	check := func(about string, v dashboard.Viewer, now time.Time, wantOverdue int, want ...string) {
		t.Helper()
		if got, overdue := changes(v, now); !slices.Equal(got, want) || overdue != wantOverdue {
			t.Errorf("%s: %d overdue, %q, want %d, %q", about, overdue, got, wantOverdue, want)
		}
	}
	check("all", dashboard.Viewer{}, at(10), 0, soon, preempted, ends, late)
	check("later", dashboard.Viewer{}, at(200), 2, ends, late)
	check("of a viewer of a", dashboard.Viewer{Namespace: func(name string) bool { return name == "a" }}, at(10), 0, soon, ends)
	check("of a viewer of no JobSets", dashboard.Viewer{JobSets: func(string) bool { return false }}, at(10), 0, preempted, ends)
	m.Observe(holding("b", "urged", 3, ready(), noticed, evicted()))
	m.Observe(holding("a", "limited", 2, ready()))
	admitted := jobSet("a", "soon", "train")
	admitted.Status.Conditions = runsSince(5)
	m.Observe(expect(admitted, jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartAbout, About: at(90)}))
	check("after changes", dashboard.Viewer{}, at(10), 0, late)
	m.Forget(jobSet("b", "late"))
	check("after a deletion", dashboard.Viewer{}, at(10), 0)
}

// A LocalQueue has the positions of its pending quota Workloads, and what it holds, also if not all ClusterQueues and namespaces may be read.
func TestLocalQueues(t *testing.T) {
	m := dashboard.New()
	others := workload("other", "first", "lq")
	others.CreationTimestamp = metav1.NewTime(at(-1))
	late, urgent := workload("a", "late", "lq"), workload("a", "urgent", "lq")
	late.CreationTimestamp, urgent.Spec.Priority = metav1.NewTime(at(5)), new(int32(7))
	elsewhere := workload("a", "elsewhere", "typo")
	for _, object := range []metav1.Object{
		clusterQueue("q", "", "8"), localQueue("a", "lq", "q"), localQueue("a", "unused", "q"), localQueue("other", "lq", "q"),
		others, late, workload("a", "early", "lq"), urgent, holding("a", "running", 3, ready()), reserving("a", "reserved", 2), elsewhere,
	} {
		m.Observe(object)
	}
	v := dashboard.Viewer{Namespace: func(name string) bool { return name == "a" }, ClusterQueue: func(string) bool { return false }}
	page := m.LocalQueues(v, dashboard.LocalQueueFilter{}, dashboard.Window{})
	var lines []string
	for _, q := range page.Items {
		lines = append(lines, fmt.Sprint(q.Namespace, "/", q.Name, q.ClusterQueue, " ", q.Pending, " ", q.Holding, " ", q.Held, " ", q.Reason))
	}
	want := []string{"a/lq 3 2 [{nvidia.com/gpu  5}] ", "a/typo 1 0 [] NotRead", "a/unused 0 0 [] "}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	key := types.NamespacedName{Namespace: "a", Name: "lq"}
	positions := func() (all []string) {
		line, _ := m.LocalQueueWorkloads(v, key, dashboard.WorkloadFilter{List: dashboard.ListPending}, dashboard.Window{})
		for _, row := range line.Items {
			position := -1
			if row.Position != nil {
				position = *row.Position
			}
			all = append(all, fmt.Sprint(row.Name, " ", *row.PositionInLocalQueue, " ", position))
		}
		return all
	}
	if got, want := positions(), []string{"urgent 0 0", "early 1 2", "late 2 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if line, _ := m.LocalQueueWorkloads(v, key, dashboard.WorkloadFilter{Text: "LATE"}, dashboard.Window{}); line.Total != 1 || *line.Items[0].PositionInLocalQueue != 2 {
		t.Errorf("a filter finds %+v", line)
	}
	line, _ := m.LocalQueueWorkloads(v, key, dashboard.WorkloadFilter{List: dashboard.ListHolding}, dashboard.Window{})
	if line.Total != 2 || line.Items[0].Name != "reserved" || line.Items[0].PositionInLocalQueue != nil || line.Items[0].Position != nil {
		t.Errorf("holding: %+v", line)
	}
	if _, isSeen := m.LocalQueueWorkloads(v, types.NamespacedName{Namespace: "other", Name: "lq"}, dashboard.WorkloadFilter{}, dashboard.Window{}); isSeen {
		t.Error("the line of a hidden LocalQueue is shown")
	}
	// The LocalQueue moves, and then a quota Workload ends.
	m.Observe(localQueue("a", "lq", "r"))
	m.Forget(workload("a", "running", "lq"))
	if got, want := positions(), []string{"urgent 0 0", "early 1 1", "late 2 2"}; !slices.Equal(got, want) {
		t.Errorf("after a move: %q, want %q", got, want)
	}
	if q, _ := m.LocalQueue(v, key); q.Holding != 1 || fmt.Sprint(q.Held) != "[{nvidia.com/gpu  2}]" {
		t.Errorf("after an end: %+v", q)
	}
	m.LacksWorkloads()
	if got, want := positions(), []string{"urgent 0 -1", "early 1 -1", "late 2 -1"}; !slices.Equal(got, want) {
		t.Errorf("without all quota Workloads: %q, want %q", got, want)
	}
}
