package dashboard_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// waitsFor returns the condition of a JobSet that waits for a reason since some time.
func waitsFor(reason string, seconds int) []metav1.Condition {
	return []metav1.Condition{condition(jobsetstatus.StageAdmitted, metav1.ConditionFalse, reason, seconds)}
}

func runsSince(seconds int) []metav1.Condition {
	return []metav1.Condition{condition(jobsetstatus.StageAdmitted, metav1.ConditionTrue, "Admitted", seconds)}
}

func ended(how jobset.JobSetConditionType, seconds int) []metav1.Condition {
	return []metav1.Condition{condition(string(how), metav1.ConditionTrue, "Ended", seconds)}
}

// namesOf returns the names of a page of JobSets.
func namesOf(m *dashboard.Model, f dashboard.JobSetFilter, w dashboard.Window) (names []string) {
	for _, row := range m.JobSets(dashboard.Viewer{}, f, w).Items {
		names = append(names, row.Name)
	}
	return names
}

// Without a column the JobSets that need attention come first, whatever their names are, and also after their states have changed.
func TestJobSetsThatNeedAttentionComeFirst(t *testing.T) {
	noticed := func(given int) []metav1.Condition {
		n := notice(metav1.ConditionTrue)
		n.LastTransitionTime = metav1.NewTime(at(given))
		return append(runsSince(1), n)
	}
	without := func(js *jobsetapi.JobSet) { delete(js.Labels, apis.QueueLabel) }
	suspended := func(js *jobsetapi.JobSet) {
		js.Annotations, js.Spec.Suspend = map[string]string{apis.StartedAnnotation: "1"}, new(true)
	}
	ordered := []struct {
		about      string
		conditions []metav1.Condition
		change     func(js *jobsetapi.JobSet)
	}{
		{"misconfigured, without a queue", []metav1.Condition{condition(jobsetstatus.StageInProgress, metav1.ConditionFalse, "Misconfigured", 99)}, func(js *jobsetapi.JobSet) {
			without(js)
			js.CreationTimestamp = metav1.NewTime(at(99)) // it has no condition StageAdmitted
		}},
		{"misconfigured", waitsFor("Misconfigured", 90), nil},
		{"too large", waitsFor("ExceedsMaxQuota", 80), nil},
		{"on no flavor", waitsFor("NoMatchingFlavor", 70), nil},
		{"deadlocked", waitsFor(apis.DeadlockedReason, 60), nil},
		{"timed out, pods end", waitsFor("EvictedDueToPodsReadyTimeout", 50), nil},
		{"timed out, backs off", waitsFor("PodsReadyTimeout", 40), nil},
		{"at the limit of its retries", waitsFor("DeactivatedDueToRequeuingLimitExceeded", 30), nil},
		{"deactivated", waitsFor("Deactivated", 20), nil},
		{"has notice", noticed(10), nil},
		{"has later notice", noticed(20), nil},
		{"waits longest", waitsFor("WaitingForQuota", 10), nil},
		{"was preempted", waitsFor("EvictedDueToPreempted", 20), nil},
		{"waits for its turn", waitsFor("PendingEvaluation", 30), nil},
		{"started last", runsSince(90), nil},
		{"started first", append(runsSince(80), notice(metav1.ConditionFalse)), nil},
		{"without a queue", nil, without},
		{"suspended", waitsFor("JobSetSuspended", 1), suspended},
		{"ended last", append(ended(jobset.JobSetCompleted, 90), waitsFor("Finished", 5)...), nil},
		{"failed", append(ended(jobset.JobSetFailed, 80), waitsFor("Misconfigured", 99)...), nil},
		{"ended first", ended(jobset.JobSetCompleted, 70), nil},
	}
	var want []string
	m := dashboard.New()
	for i, o := range slices.Backward(ordered) {
		name := fmt.Sprintf("%02d", (i*8)%len(ordered)) // in another order than that of the list
		js := jobSet("team", name+" "+o.about)
		if i%2 == 0 {
			m.Observe(js.DeepCopy()) // its state changes
		}
		if o.change != nil {
			o.change(js)
		}
		js.Status.Conditions = o.conditions
		m.Observe(js)
		want = append(want, js.Name)
	}
	slices.Reverse(want)
	if diff := cmp.Diff(want, namesOf(m, dashboard.JobSetFilter{}, dashboard.Window{})); diff != "" {
		t.Error(diff)
	}
	m.Forget(jobSet("team", want[0]))
	if diff := cmp.Diff(want[1:], namesOf(m, dashboard.JobSetFilter{}, dashboard.Window{})); diff != "" {
		t.Errorf("after a deletion: %s", diff)
	}
}

// sortable returns a Model with three JobSets that differ in all columns but the last, which has nothing in most of them.
func sortable() *dashboard.Model {
	m := dashboard.New()
	for _, object := range []metav1.Object{localQueue("n1", "lq", "q2"), localQueue("n2", "lq", "q1"), clusterQueue("q1", "", "8"), clusterQueue("q2", "", "8")} {
		m.Observe(object)
	}
	requests := func(w *kueue.Workload, cpus, gpus int64) *kueue.Workload {
		w.Status.ResourceRequests = []kueue.PodSetRequest{{Name: "main", Resources: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), gpu: *resource.NewQuantity(gpus, resource.DecimalSI),
		}}}
		return w
	}
	holds := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 5)
	for i, object := range []*jobsetapi.JobSet{jobSet("n1", "b", "hold", "ask"), jobSet("n2", "a", "hold", "ask"), jobSet("n3", "c")} {
		object.CreationTimestamp = metav1.NewTime(at(100 * (i + 1)))
		object.Status.Restarts = int32(3 - i)
		if object.Name == "c" {
			object.Labels = nil
			m.Observe(object)
			continue
		}
		e := &jobsetstatus.ExpectedStart{Stage: "ask", Certainty: jobsetstatus.StartBy, By: at(1000 - i), Computed: at(1)}
		object.Status.Conditions = append(waitsFor([]string{"WaitingForQuota", "PendingEvaluation"}[i], 1), e.Condition(object), metav1.Condition{
			Type: jobsetstatus.StageInProgress, Status: metav1.ConditionTrue, Message: fmt.Sprintf("%d/3", 2-i),
		})
		m.Observe(object)
		hold := stageWorkload(object, "hold", holds)
		admit(hold, "q", "f", int64(9+i)) // 9 are less than 10
		m.Observe(hold)
		m.Observe(requests(stageWorkload(object, "ask"), int64(10-i), 4))
	}
	return m
}

// The list is sorted by each column, in both orders. What has nothing in the column comes last, and what is equal in the order of names.
func TestSortedJobSets(t *testing.T) {
	m := sortable()
	for sort, want := range map[string]string{
		"namespace": "b a c", "-namespace": "c a b", "name": "a b c", "-name": "c b a", "clusterQueue": "a b c", "-clusterQueue": "b a c",
		"state": "c b a", "-state": "b a c", "age": "c a b", "-age": "b a c", "restarts": "c a b", "-restarts": "b a c", "stages": "a b c", "-stages": "b a c",
		"holds": "b a c", "-holds": "a b c", "asks": "a b c", "-asks": "b a c", "start": "a b c", "-start": "b a c", "reason": "a b c", "-reason": "b a c",
	} {
		if !slices.Contains(dashboard.JobSetSorts(), sort) {
			t.Errorf("%s is refused", sort)
		}
		if got := strings.Join(namesOf(m, dashboard.JobSetFilter{Sort: sort}, dashboard.Window{}), " "); got != want {
			t.Errorf("sorted by %s: %s, want %s", sort, got, want)
		}
	}
	if got := len(dashboard.JobSetSorts()); got != 22 {
		t.Errorf("%d values of sort, and the table has 22", got)
	}
	// The order must not reveal a ClusterQueue that the viewer does not see.
	page := m.JobSets(dashboard.Viewer{ClusterQueue: func(string) bool { return false }}, dashboard.JobSetFilter{Sort: "clusterQueue"}, dashboard.Window{})
	if page.Items[0].Name != "b" || page.Items[1].Name != "a" {
		t.Errorf("sorted by hidden ClusterQueues: %s before %s", page.Items[0].Name, page.Items[1].Name)
	}
}

// Each JobSet is on one page, in whatever order, and also if all are equal in the column.
func TestPagesOfSortedJobSets(t *testing.T) {
	m := dashboard.New()
	const count = 1000
	for i := range count {
		js := jobSet("team", fmt.Sprintf("js-%04d", (i*7)%count))
		js.Status.Restarts = int32(i % 3)
		m.Observe(js)
	}
	for _, sort := range append(dashboard.JobSetSorts(), "") {
		var all []string
		for offset := 0; offset < count; offset += 150 {
			page := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{Sort: sort, Text: "JS-"}, dashboard.Window{Offset: offset, Limit: 150})
			if page.Total != count || page.Offset != offset {
				t.Fatalf("sorted by %q: the page at %d has offset %d, total %d", sort, offset, page.Offset, page.Total)
			}
			for _, row := range page.Items {
				all = append(all, fmt.Sprintf("%d %s", row.Restarts, row.Name))
			}
		}
		want := slices.Clone(all)
		slices.Sort(want)
		if sort == "restarts" && !slices.Equal(all, want) {
			t.Errorf("sorted by %s: not in order", sort)
		}
		if want = slices.Compact(want); len(want) != count {
			t.Errorf("sorted by %q: the pages have %d of %d JobSets", sort, len(want), count)
		}
	}
	if page := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{Sort: "name"}, dashboard.Window{Offset: 1 << 30}); len(page.Items) != 0 || page.Total != count {
		t.Errorf("behind the last page: %d of %d", len(page.Items), page.Total)
	}
}

// The totals are those of all JobSets that match and that the viewer sees, whatever the page is.
func TestTotalsOfJobSets(t *testing.T) {
	m := sortable()
	for name, tc := range map[string]struct {
		viewer dashboard.Viewer
		filter dashboard.JobSetFilter
		want   string
	}{
		"all":            {want: "map[Unqueued:1 Waiting:2] [{nvidia.com/gpu  19}]"},
		"a namespace":    {filter: dashboard.JobSetFilter{Namespace: "n2", Sort: "-name"}, want: "map[Waiting:1] [{nvidia.com/gpu  10}]"},
		"a state":        {filter: dashboard.JobSetFilter{State: dashboard.JobSetUnqueued}, want: "map[Unqueued:1] []"},
		"nothing":        {filter: dashboard.JobSetFilter{Text: "none"}, want: "map[] []"},
		"not the hidden": {viewer: dashboard.Viewer{Namespace: func(name string) bool { return name == "n1" }}, want: "map[Waiting:1] [{nvidia.com/gpu  9}]"},
	} {
		page := m.JobSets(tc.viewer, tc.filter, dashboard.Window{Limit: 1, Offset: 1})
		if got := fmt.Sprint(page.States, " ", page.Held); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	// What a JobSet holds follows its quota Workloads, and accelerators come first.
	js := jobSet("n1", "b")
	w := stageWorkload(js, "more", condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 5))
	w.Status.Admission.PodSetAssignments[0].Flavors[corev1.ResourceCPU] = "f"
	w.Status.Admission.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU] = resource.MustParse("2")
	m.Observe(w)
	held := func() string {
		// Those of all JobSets are kept, and others are added up.
		kept, added := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}), m.JobSets(dashboard.Viewer{Namespace: func(string) bool { return true }}, dashboard.JobSetFilter{}, dashboard.Window{})
		if diff := cmp.Diff(added, kept); diff != "" {
			t.Errorf("the list of all JobSets: -added up +kept\n%s", diff)
		}
		return fmt.Sprint(m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{Namespace: "n1"}, dashboard.Window{}).Held)
	}
	if got, want := held(), "[{nvidia.com/gpu  17} {cpu  2}]"; got != want {
		t.Errorf("with another stage: %s, want %s", got, want)
	}
	m.Forget(w)
	if got, want := held(), "[{nvidia.com/gpu  9}]"; got != want {
		t.Errorf("without the other stage: %s, want %s", got, want)
	}
	w.Name = "b-hold"
	w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 9))
	m.Observe(w)
	if got := held(); got != "[]" {
		t.Errorf("after the end of the stages: %s", got)
	}
	js.Status.Conditions = ended(jobset.JobSetCompleted, 9)
	m.Observe(js)
	held()
	m.Observe(stageWorkload(js, "late", condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 5)))
	m.Forget(js)
	if got := held(); got != "[]" {
		t.Errorf("without the JobSet: %s", got)
	}
	m.Observe(js)
	if got, want := held(), "[{nvidia.com/gpu  8}]"; got != want {
		t.Errorf("with the JobSet again: %s, want %s", got, want)
	}
}

// A list has the position of the first pending stage, unless not all quota Workloads could be read.
func TestPositionsOfJobSets(t *testing.T) {
	m := sortable()
	want := map[string]string{"a": "0", "b": "0", "c": ""}
	first := workload("n1", "first", "lq")
	first.Spec.Priority = new(int32(1))
	for range 2 {
		for _, row := range m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}).Items {
			got := ""
			if row.Position != nil {
				got = strconv.Itoa(*row.Position)
			}
			if got != want[row.Name] {
				t.Errorf("%s has position %q, want %q", row.Name, got, want[row.Name])
			}
		}
		m.Observe(first)
		want["b"] = "1"
	}
	m.LacksWorkloads()
	if row := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{Sort: "name"}, dashboard.Window{}).Items[0]; row.Position != nil {
		t.Errorf("position %d among those that could be read", *row.Position)
	}
}

// A long list is read in steps, so that it does not keep others from the Model. What changes in between breaks no page.
func TestScanInSteps(t *testing.T) {
	const count, perStep = 10_000, 2500
	for _, f := range []dashboard.JobSetFilter{{Text: "js"}, {Sort: "name"}, {Sort: "-name"}} {
		m := dashboard.New()
		for i := range count {
			m.Observe(jobSet("team", fmt.Sprintf("js-%05d", i)))
		}
		steps := 0
		answer := dashboard.ScanJobSets(func(use func(*dashboard.Model)) {
			use(m)
			// One is deleted and another one moves to the end of what is visited.
			m.Forget(jobSet("team", fmt.Sprintf("js-%05d", 20+steps)))
			moved := jobSet("team", fmt.Sprintf("js-%05d", 10+steps))
			moved.Status.Conditions = ended(jobset.JobSetCompleted, 5)
			m.Observe(moved)
			steps++
		}, dashboard.Viewer{}, f, dashboard.Window{Limit: 200})
		if steps < count/perStep {
			t.Errorf("%+v: %d steps for %d JobSets", f, steps, count)
		}
		names := map[string]bool{}
		for _, row := range answer.Items {
			names[row.Name] = true
		}
		if len(names) != len(answer.Items) || len(names) < 200-2*steps || answer.Total < count-2*steps || answer.Total > count+steps {
			t.Errorf("%+v: %d rows with %d names, total %d", f, len(answer.Items), len(names), answer.Total)
		}
	}
	m := dashboard.New()
	for i := range count {
		m.Observe(jobSet("team", fmt.Sprintf("js-%05d", i)))
	}
	steps := 0
	found := dashboard.Search(func(use func(*dashboard.Model)) { steps++; use(m) }, dashboard.Viewer{}, "js-09999")
	if steps < count/perStep || len(found) != 1 {
		t.Errorf("a search in %d steps finds %v", steps, found)
	}
}
