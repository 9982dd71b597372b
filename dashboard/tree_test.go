package dashboard_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
)

// using returns a ClusterQueue whose status reports GPUs that are reserved, and those of them that are admitted.
func using(q *kueue.ClusterQueue, reserved, admitted string) *kueue.ClusterQueue {
	usage := func(gpus string) []kueue.FlavorUsage {
		return []kueue.FlavorUsage{{Name: "f", Resources: []kueue.ResourceUsage{{Name: gpu, Total: resource.MustParse(gpus)}}}}
	}
	q.Status.FlavorsReservation, q.Status.FlavorsUsage = usage(reserved), usage(admitted)
	return q
}

// tree renders the rows as lines.
func tree(page dashboard.Page[*dashboard.QueueRow]) []string {
	var lines []string
	for _, row := range page.Items {
		line := strings.Repeat(" ", len(row.Path)) + row.Name
		for _, b := range row.Bars {
			line += fmt.Sprintf(" %g/%g reserved %g idle %g borrowed %g lent %g free %g", b.Used, b.Nominal, b.Reserved, *b.Idle, b.Borrowed, b.Lent, b.Free)
			if b.Unlisted > 0 {
				line += fmt.Sprintf(" unlisted %g", b.Unlisted)
			}
		}
		if row.Reason != "" {
			line += " " + row.Reason
		}
		lines = append(lines, line)
	}
	return lines
}

// Kueue's messages about an inactive ClusterQueue are no sentences.
func TestInactiveQueue(t *testing.T) {
	for message, want := range map[string]string{
		"Can't admit new workloads: is stopped.":                                          "the ClusterQueue is stopped.",
		"Can't admit new workloads: references missing ResourceFlavor(s): a100.":          "the ClusterQueue references missing ResourceFlavor(s): a100.",
		"Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor.": "Cannot specify MultiKueue AdmissionCheck per flavor.",
		"LocalQueue is stopped": "LocalQueue is stopped",
	} {
		q := clusterQueue("q", "", "8")
		q.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Reason: "Stopped", Message: message}}
		m := dashboard.New()
		m.Observe(q)
		if answer, _ := m.Queue(dashboard.Viewer{}, "q", start); answer.Message != want {
			t.Errorf("%s: the page shows %q, want %q", message, answer.Message, want)
		}
	}
}

func TestQueues(t *testing.T) {
	cohort := func(name, parent string) *kueue.Cohort {
		return &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
	}
	limited := clusterQueue("kept", "c", "8")
	limited.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("0"))
	stopped := clusterQueue("stopped", "c", "8")
	stopped.Status.Conditions = []metav1.Condition{condition(kueue.ClusterQueueActive, metav1.ConditionFalse, "Stopped", 1)}
	starting := workload("team", "w", "lq")
	admit(starting, "borrower", "f", 3)
	removed, unadmitted := workload("team", "removed", "lq"), workload("team", "unadmitted", "lq")
	admit(removed, "q", "removed", 3)
	admit(unadmitted, "q", "removed", 2)
	unadmitted.Status.Conditions = unadmitted.Status.Conditions[:1]
	for name, tc := range map[string]struct {
		objects []metav1.Object
		filter  dashboard.QueueFilter
		want    []string
	}{
		"one that borrows, one that lends all it has, and one that lends nothing": {
			objects: []metav1.Object{
				using(clusterQueue("borrower", "c", "4"), "12", "10"), clusterQueue("lender", "c", "8"), limited, localQueue("team", "lq", "borrower"), starting,
			},
			want: []string{
				"c 12/20 reserved 2 idle 3 borrowed 8 lent 0 free 8",
				" borrower 12/4 reserved 2 idle 3 borrowed 8 lent 0 free 0",
				" kept 0/8 reserved 0 idle 0 borrowed 0 lent 0 free 8",
				" lender 0/8 reserved 0 idle 0 borrowed 0 lent 8 free 0",
			},
		},
		"a flavor that was removed while quota Workloads hold it": {
			objects: []metav1.Object{using(clusterQueue("q", "c", "4"), "1", "1"), clusterQueue("other", "c", "2"), localQueue("team", "lq", "q"), removed, unadmitted},
			want: []string{
				"c 1/6 reserved 0 idle 0 borrowed 0 lent 0 free 5 5/0 reserved 2 idle 3 borrowed 0 lent 0 free 0 unlisted 5",
				" other 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 5",
				" q 1/4 reserved 0 idle 0 borrowed 0 lent 0 free 5 5/0 reserved 2 idle 3 borrowed 0 lent 0 free 0 unlisted 5",
			},
		},
		"one that is stopped admits nothing, and lends": {
			objects: []metav1.Object{stopped, using(clusterQueue("q", "c", "1"), "1", "1")},
			want: []string{
				"c 1/9 reserved 0 idle 0 borrowed 0 lent 0 free 8", " q 1/1 reserved 0 idle 0 borrowed 0 lent 0 free 8",
				" stopped 0/8 reserved 0 idle 0 borrowed 0 lent 0 free 0 Stopped",
			},
		},
		"quota above the nominal quota without a Cohort is not borrowed from anywhere, and not lent": {
			objects: []metav1.Object{using(clusterQueue("q", "", "4"), "1", "1")},
			want:    []string{"q 1/4 reserved 0 idle 0 borrowed 0 lent 0 free 3"},
		},
		"nested Cohorts, one of which has no object": {
			objects: []metav1.Object{cohort("a", "top"), clusterQueue("q1", "a", "1"), clusterQueue("q2", "b", "2"), cohort("b", "top"), clusterQueue("q3", "", "3")},
			want: []string{
				"top 0/3 reserved 0 idle 0 borrowed 0 lent 0 free 3", " a 0/1 reserved 0 idle 0 borrowed 0 lent 0 free 3",
				"  q1 0/1 reserved 0 idle 0 borrowed 0 lent 0 free 3", " b 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 3",
				"  q2 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 3", "q3 0/3 reserved 0 idle 0 borrowed 0 lent 0 free 3",
			},
		},
		"Cohorts in a cycle": {
			objects: []metav1.Object{cohort("a", "b"), cohort("b", "a"), cohort("self", "self"), clusterQueue("q", "a", "1")},
			want: []string{
				"a 0/1 reserved 0 idle 0 borrowed 0 lent 0 free 1 Cycle", " q 0/1 reserved 0 idle 0 borrowed 0 lent 0 free 1", "b Cycle", "self Cycle",
			},
		},
		"below a Cohort": {
			objects: []metav1.Object{clusterQueue("q1", "a", "1"), clusterQueue("q2", "b", "2")},
			filter:  dashboard.QueueFilter{Under: "b"},
			want:    []string{"b 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 2", " q2 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 2"},
		},
		"those that lend": {
			objects: []metav1.Object{using(clusterQueue("borrower", "c", "4"), "6", "6"), clusterQueue("lender", "c", "2")},
			filter:  dashboard.QueueFilter{State: dashboard.QueuesLending},
			want:    []string{" lender 0/2 reserved 0 idle 0 borrowed 0 lent 2 free 0"},
		},
		"those of a namespace": {
			objects: []metav1.Object{clusterQueue("q1", "", "1"), clusterQueue("q2", "", "2"), localQueue("team", "lq", "q2")},
			filter:  dashboard.QueueFilter{Namespace: "team"},
			want:    []string{"q2 0/2 reserved 0 idle 0 borrowed 0 lent 0 free 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the order of observation does not matter
				m := dashboard.New()
				for _, object := range tc.objects {
					m.Observe(object)
				}
				if got := tree(m.Queues(dashboard.Viewer{}, tc.filter, dashboard.Window{})); !slices.Equal(got, tc.want) {
					t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
				}
				slices.Reverse(tc.objects)
			}
		})
	}
}

// A Model that has forgotten all objects is like a new one.
func TestForget(t *testing.T) {
	w := workload("team", "w", "lq")
	admit(w, "q", "f", 1)
	objects := []metav1.Object{clusterQueue("q", "c", "1"), localQueue("team", "lq", "q"), w, workload("team", "pending", "lq"), jobSet("team", "js")}
	for first := range objects {
		m := dashboard.New()
		for _, object := range objects {
			m.Observe(object)
		}
		for i := range objects {
			m.Forget(objects[(first+i)%len(objects)])
		}
		if page := m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{}); page.Total != 0 {
			t.Errorf("queues are left: %v", tree(page))
		}
		if page := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}); page.Total != 0 {
			t.Errorf("JobSets are left: %v", page)
		}
		if page := m.Namespaces(dashboard.Viewer{}, "", dashboard.Window{}); page.Total != 0 {
			t.Errorf("namespaces are left: %v", page)
		}
		m.Observe(objects[0])
		m.Observe(objects[1])
		answer, isThere := m.Queue(dashboard.Viewer{}, "q", start)
		if !isThere || len(answer.States) != 0 || *answer.Bars[0].Idle != 0 {
			t.Errorf("the new ClusterQueue has quota Workloads: %v, %v", isThere, answer.States)
		}
	}
}

// After a list, a Model has only the objects of the list, of the kinds and namespaces that were listed.
func TestRetain(t *testing.T) {
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	objects := []metav1.Object{
		clusterQueue("q", "c", "1"), clusterQueue("gone", "", "1"), cohort, localQueue("team", "lq", "q"), localQueue("other", "lq", "q"),
		workload("team", "w", "lq"), workload("team", "gone", "lq"), workload("other", "w", "lq"), jobSet("team", "js"), jobSet("other", "js"),
	}
	m := dashboard.New()
	for _, object := range objects {
		m.Observe(object)
	}
	only := func(names ...string) func(key types.NamespacedName) bool {
		return func(key types.NamespacedName) bool { return slices.Contains(names, key.String()) }
	}
	m.Retain(&kueue.ClusterQueue{}, "", only("/q"))
	m.Retain(&kueue.Workload{}, "team", only("team/w"))
	m.Retain(&kueue.LocalQueue{}, "other", only())
	m.Retain(&jobsetapi.JobSet{}, "", only("team/js"))
	if got, want := tree(m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{})), 2; len(got) != want {
		t.Errorf("rows: %v", got)
	}
	queue, _ := m.Queue(dashboard.Viewer{}, "q", start)
	if queue.States[dashboard.Pending] != 1 || len(queue.LocalQueues) != 1 || queue.LocalQueues[0].Namespace != "team" {
		t.Errorf("quota Workloads %v, LocalQueues %v", queue.States, queue.LocalQueues)
	}
	want := []dashboard.NamespaceRow{{Name: "other", Objects: 1}, {Name: "team", Objects: 2}}
	if got := m.Namespaces(dashboard.Viewer{}, "", dashboard.Window{}).Items; !slices.Equal(got, want) {
		t.Errorf("namespaces: %v, want %v", got, want)
	}
	m.Retain(cohort, "", only())
	m.Retain(&kueue.ClusterQueue{}, "", only())
	if got := tree(m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{})); len(got) != 0 {
		t.Errorf("rows: %v", got)
	}
}

// TestShares: rows have the weighted share of fair sharing that the status reports, and the weight, which is 1 by default.
func TestShares(t *testing.T) {
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: kueue.CohortStatus{FairSharing: &kueue.FairSharingStatus{WeightedShare: 120}}}
	heavy, light, without := clusterQueue("heavy", "c", "8"), clusterQueue("light", "c", "8"), clusterQueue("without", "c", "8")
	heavy.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse("2500m"))}
	heavy.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: 40}
	light.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: 0}
	m := dashboard.New()
	for _, o := range []metav1.Object{cohort, heavy, light, without} {
		m.Observe(o)
	}
	got := map[string]string{}
	for _, row := range m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{}).Items {
		got[row.Name] = "none"
		if row.Share != nil && row.Weight != nil {
			got[row.Name] = fmt.Sprintf("%d at weight %g", *row.Share, *row.Weight)
		}
	}
	want := map[string]string{"c": "120 at weight 1", "heavy": "40 at weight 2.5", "light": "0 at weight 1", "without": "none"}
	if !maps.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
}
