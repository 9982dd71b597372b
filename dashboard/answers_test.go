package dashboard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

var start = time.Unix(100, 0).UTC()

// at returns a time some seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func condition(conditionType string, isTrue metav1.ConditionStatus, reason string, seconds int) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: isTrue, Reason: reason, Message: "message of " + reason, LastTransitionTime: metav1.NewTime(at(seconds))}
}

func jobSet(namespace, name string, stages ...string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Labels: map[string]string{apis.QueueLabel: "lq"}, CreationTimestamp: metav1.NewTime(start),
	}}
	for i, stage := range stages {
		r := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: stage, Replicas: 1}}
		r.Template.Spec.Parallelism, r.Template.Spec.Completions = new(int32(2)), new(int32(2))
		r.Template.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
		if i > 0 {
			r.DependsOn = []jobset.DependsOn{{Name: stages[i-1], Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	return js
}

// stageWorkload returns the quota Workload of a stage with conditions.
func stageWorkload(js *jobsetapi.JobSet, stage string, conditions ...metav1.Condition) *kueue.Workload {
	w := workload(js.Namespace, js.Name+"-"+stage, "lq")
	w.CreationTimestamp = metav1.NewTime(start)
	w.Labels = map[string]string{apis.JobSetLabel: js.Name, apis.StageLabel: stage}
	w.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true)}}
	if len(conditions) > 0 && conditions[0].Type == kueue.WorkloadQuotaReserved && conditions[0].Status == metav1.ConditionTrue {
		admit(w, "q", "f", 8)
	}
	w.Status.Conditions = conditions
	return w
}

// A viewer of namespace mine sees the line with the others in it, without a field of them, and no filter finds them.
func TestRedaction(t *testing.T) {
	m := dashboard.New()
	for _, object := range []metav1.Object{
		clusterQueue("q", "", "1"), clusterQueue("hidden-queue", "secret-cohort", "1"), localQueue("mine", "lq", "q"), localQueue("secret", "lq", "q"),
		jobSet("mine", "a"), jobSet("secret", "confidential"), workload("mine", "w1", "lq"), workload("secret", "w2-confidential", "lq"),
	} {
		m.Observe(object)
	}
	v := dashboard.Viewer{
		Namespace:    func(name string) bool { return name == "mine" },
		ClusterQueue: func(name string) bool { return name == "q" },
	}
	all := map[string]any{}
	queue, isThere := m.Queue(v, "q", start)
	if !isThere || queue.HiddenLocalQueues != 1 || queue.States[dashboard.Pending] != 2 {
		t.Errorf("the ClusterQueue: %v, %d hidden, %v", isThere, queue.HiddenLocalQueues, queue.States)
	}
	all["queue"] = queue
	if _, isThere := m.Queue(v, "hidden-queue", start); isThere {
		t.Error("a hidden ClusterQueue is described")
	}
	if _, isThere := m.Workloads(v, "hidden-queue", dashboard.WorkloadFilter{}, dashboard.Window{}); isThere {
		t.Error("the line of a hidden ClusterQueue is shown")
	}
	line, _ := m.Workloads(v, "q", dashboard.WorkloadFilter{}, dashboard.Window{})
	if line.Total != 2 || !line.Items[1].IsHidden || *line.Items[1].Position != 1 {
		t.Errorf("the line: %+v", line)
	}
	all["line"] = line
	for name, filter := range map[string]dashboard.WorkloadFilter{"text": {Text: "confidential"}, "namespace": {Namespace: "secret"}} {
		if page, _ := m.Workloads(v, "q", filter, dashboard.Window{}); page.Total != 0 {
			t.Errorf("a filter by %s finds %d", name, page.Total)
		}
	}
	jobSets := m.JobSets(v, dashboard.JobSetFilter{}, dashboard.Window{})
	if jobSets.Total != 1 || jobSets.Hidden != 1 {
		t.Errorf("JobSets: %d, %d hidden", jobSets.Total, jobSets.Hidden)
	}
	all["jobSets"], all["queues"], all["namespaces"] = jobSets, m.Queues(v, dashboard.QueueFilter{}, dashboard.Window{}), m.Namespaces(v, "", dashboard.Window{})
	all["search"] = append(m.Search(v, "secret"), append(m.Search(v, "conf"), m.Search(v, "hidden")...)...)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret", "confidential", "hidden-queue"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the answers contain %q: %s", secret, text)
		}
	}
}

// Namespaces come in pages, and are found by a part of their names among those that the viewer sees.
func TestNamespaces(t *testing.T) {
	m := dashboard.New()
	for i := range 1000 {
		m.Observe(workload(fmt.Sprintf("team-%03d", i), "w", "lq"))
	}
	m.Observe(workload("team-007", "w2", "lq"))
	v := dashboard.Viewer{Namespace: func(name string) bool { return name != "team-070" }}
	for name, tc := range map[string]struct {
		viewer      dashboard.Viewer
		text        string
		window      dashboard.Window
		total, rows int
		first       dashboard.NamespaceRow
	}{
		"all":        {total: 1000, rows: dashboard.DefaultLimit, first: dashboard.NamespaceRow{Name: "team-000", Objects: 1}},
		"last page":  {window: dashboard.Window{Offset: 990}, total: 1000, rows: 10, first: dashboard.NamespaceRow{Name: "team-990", Objects: 1}},
		"many":       {window: dashboard.Window{Limit: 1000}, total: 1000, rows: dashboard.MaxLimit, first: dashboard.NamespaceRow{Name: "team-000", Objects: 1}},
		"by text":    {text: "M-07", total: 10, rows: 10, first: dashboard.NamespaceRow{Name: "team-070", Objects: 1}},
		"one":        {text: "007", total: 1, rows: 1, first: dashboard.NamespaceRow{Name: "team-007", Objects: 2}},
		"not hidden": {viewer: v, text: "m-07", total: 9, rows: 9, first: dashboard.NamespaceRow{Name: "team-071", Objects: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			page := m.Namespaces(tc.viewer, tc.text, tc.window)
			if page.Total != tc.total || len(page.Items) != tc.rows || page.Items[0] != tc.first {
				t.Errorf("%d namespaces in all, %d on the page, the first is %v", page.Total, len(page.Items), page.Items[0])
			}
		})
	}
}

// Messages that fill the status of objects do not fill the page of a list. The view of a JobSet has all of its message.
func TestLongMessages(t *testing.T) {
	const most = 3000 * dashboard.MaxLimit                // two messages in a row, and its other fields
	long := "12345" + strings.Repeat("tränke ", 32<<10/8) // a row would end inside of a letter
	inactive := func(conditionType string) []metav1.Condition {
		return []metav1.Condition{{Type: conditionType, Status: metav1.ConditionFalse, Reason: "R", Message: long}}
	}
	m := dashboard.New()
	q := clusterQueue("q", "", "1")
	q.Status.Conditions = inactive(kueue.ClusterQueueActive)
	m.Observe(q)
	var one *jobsetapi.JobSet
	for i := range dashboard.MaxLimit {
		one = jobSet("team", fmt.Sprint("js-", i), "train")
		one.Status.Conditions = append(inactive(jobsetstatus.StageAdmitted), inactive(jobsetstatus.StageInProgress)...)
		w := stageWorkload(one, "train", inactive(kueue.WorkloadQuotaReserved)...)
		lq := localQueue("team", fmt.Sprint("lq-", i), "q")
		lq.Status.Conditions = inactive(kueue.LocalQueueActive)
		for _, object := range []metav1.Object{localQueue("team", "lq", "q"), lq, one, w} {
			m.Observe(object)
		}
	}
	window := dashboard.Window{Limit: dashboard.MaxLimit}
	line, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{}, window)
	queue, _ := m.Queue(dashboard.Viewer{}, "q", start)
	queue.Message = "" // there is one
	for name, answer := range map[string]any{
		"line": line, "queue": queue, "queues": m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, window), "JobSets": m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, window),
	} {
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > most || !strings.Contains(string(text), "tr…") {
			t.Errorf("%s has %d bytes, at most %d are wanted: %.2000s", name, len(text), most, text)
		}
	}
	if answer := m.JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: one}, start); answer.Message != long {
		t.Errorf("the view of a JobSet has %d bytes of its message, want %d", len(answer.Message), len(long))
	}
}

// Without all quota Workloads there are no positions and no idle quota. A ClusterQueue that may not be read is known by its LocalQueues.
func TestMissingRights(t *testing.T) {
	m := dashboard.New()
	m.LacksWorkloads()
	starting := workload("team", "starting", "lq")
	admit(starting, "q", "f", 1)
	js := jobSet("team", "js", "train")
	w := stageWorkload(js, "train")
	for _, object := range []metav1.Object{localQueue("team", "lq", "unread"), localQueue("team", "other", "q"), clusterQueue("q", "c", "8"), js, w, starting} {
		m.Observe(object)
	}
	queue, isThere := m.Queue(dashboard.Viewer{}, "unread", start)
	if !isThere || queue.Reason != "NotRead" || len(queue.LocalQueues) != 1 {
		t.Errorf("%v: %+v", isThere, queue)
	}
	line, _ := m.Workloads(dashboard.Viewer{}, "unread", dashboard.WorkloadFilter{}, dashboard.Window{})
	if line.Total != 1 || line.Items[0].Position != nil {
		t.Errorf("the line: %+v", line)
	}
	answer := m.JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}}, start)
	if answer.Stages[0].Position != nil || answer.Stages[0].ClusterQueue != "unread" {
		t.Errorf("the stage: %+v", answer.Stages[0])
	}
	for _, row := range m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{}).Items {
		if row.Bars[0].Idle != nil {
			t.Errorf("%s %s: idle %g", row.Kind, row.Name, *row.Bars[0].Idle)
		}
	}
}

func TestPages(t *testing.T) {
	m := dashboard.New()
	m.Observe(clusterQueue("q", "", "1"))
	m.Observe(localQueue("team", "lq", "q"))
	const count = 2000
	for i := range count {
		w := workload("team", fmt.Sprintf("w-%04d", i), "lq")
		w.CreationTimestamp = metav1.NewTime(at(count - i))
		m.Observe(w)
	}
	seen := map[string]bool{}
	for offset := 0; offset < count; offset += 150 {
		page, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{}, dashboard.Window{Offset: offset, Limit: 150})
		if page.Total != count || page.Offset != offset || *page.Items[0].Position != offset || page.Items[0].Name != fmt.Sprintf("w-%04d", count-1-offset) {
			t.Fatalf("page at %d: total %d, first %+v", offset, page.Total, page.Items[0])
		}
		for _, item := range page.Items {
			seen[item.Name] = true
		}
	}
	if len(seen) != count {
		t.Errorf("the pages have %d of %d", len(seen), count)
	}
	for _, tc := range []struct {
		window dashboard.Window
		items  int
	}{
		{dashboard.Window{}, dashboard.DefaultLimit},
		{dashboard.Window{Limit: 1000}, dashboard.MaxLimit},
		{dashboard.Window{Offset: count + 1}, 0},
		{dashboard.Window{Offset: -5, Limit: -5}, dashboard.DefaultLimit},
	} {
		if page, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{}, tc.window); len(page.Items) != tc.items {
			t.Errorf("%+v: %d items, want %d", tc.window, len(page.Items), tc.items)
		}
	}
	page, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{Text: "W-0007"}, dashboard.Window{})
	if page.Total != 1 || *page.Items[0].Position != count-1-7 {
		t.Errorf("a filter changes the position: %+v", page)
	}
}

// notice returns the condition PreemptionPending.
func notice(status metav1.ConditionStatus) metav1.Condition {
	c := condition(apis.PreemptionPendingCondition, status, kueue.InClusterQueueReason, 4)
	c.Message = quotaworkload.NoticeMessage(at(100), "urgent")
	return c
}

// A JobSet with notice of its preemption shows the time and the preemptor, in lists, too, until it is evicted or the notice is withdrawn.
func TestNotice(t *testing.T) {
	for status, want := range map[metav1.ConditionStatus][]string{
		metav1.ConditionTrue:  {"PreemptionPending", quotaworkload.NoticeMessage(at(100), "urgent")},
		metav1.ConditionFalse: {"Admitted", "message of Admitted"},
	} {
		js := jobSet("team", "js", "train")
		js.Status.Conditions = []metav1.Condition{condition(jobsetstatus.StageAdmitted, metav1.ConditionTrue, "Admitted", 2), notice(status)}
		m := dashboard.New()
		m.Observe(js)
		answer := m.JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js}, at(10))
		for _, row := range []dashboard.JobSetRow{answer.JobSetRow, m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}).Items[0]} {
			if got := []string{row.Reason, row.Message}; !slices.Equal(got, want) || row.State != dashboard.JobSetAdmitted {
				t.Errorf("%s: %s %q, want %q", status, row.State, got, want)
			}
		}
	}
}

func TestStates(t *testing.T) {
	reserved, admitted := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 1), condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", 2)
	ready, evicted := condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, "Started", 3), condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", 4)
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		change     func(w *kueue.Workload)
		want       dashboard.State
		reason     string
	}{
		"new":     {nil, nil, dashboard.Pending, "PendingEvaluation"},
		"refused": {[]metav1.Condition{condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", 1), condition(apis.WaitingCondition, metav1.ConditionTrue, "WaitingForQuota", 1)}, nil, dashboard.Pending, "WaitingForQuota"},
		"gated": {nil, func(w *kueue.Workload) {
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
		}, dashboard.Gated, "AdmissionGated"},
		"deactivated":   {nil, func(w *kueue.Workload) { w.Spec.Active = new(false) }, dashboard.Deactivated, "Deactivated"},
		"backing off":   {[]metav1.Condition{condition(kueue.WorkloadRequeued, metav1.ConditionFalse, "PodsReadyTimeout", 1)}, nil, dashboard.BackingOff, "PodsReadyTimeout"},
		"reserved":      {[]metav1.Condition{reserved}, nil, dashboard.Reserved, "QuotaReserved"},
		"admitted":      {[]metav1.Condition{reserved, admitted}, nil, dashboard.Starting, "Admitted"},
		"ready":         {[]metav1.Condition{reserved, admitted, ready}, nil, dashboard.Running, "Started"},
		"noticed":       {[]metav1.Condition{reserved, admitted, ready, notice(metav1.ConditionTrue)}, nil, dashboard.Running, "PreemptionPending"},
		"no longer":     {[]metav1.Condition{reserved, admitted, ready, notice(metav1.ConditionFalse)}, nil, dashboard.Running, "Started"},
		"starting":      {[]metav1.Condition{reserved, admitted, notice(metav1.ConditionTrue)}, nil, dashboard.Starting, "PreemptionPending"},
		"evicted":       {[]metav1.Condition{reserved, admitted, ready, evicted}, nil, dashboard.Evicting, "Preempted"},
		"finished":      {[]metav1.Condition{reserved, admitted, condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 5)}, nil, dashboard.Finished, "Succeeded"},
		"being deleted": {nil, func(w *kueue.Workload) { w.DeletionTimestamp = new(metav1.NewTime(start)) }, dashboard.Gated, "Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			js := jobSet("team", "js", "train")
			w := stageWorkload(js, "train", tc.conditions...)
			if tc.change != nil {
				tc.change(w)
			}
			m := dashboard.New()
			answer := m.JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}}, at(10))
			if got := answer.Stages[0]; got.State != tc.want || got.Reason != tc.reason {
				t.Errorf("%s %s, want %s %s", got.State, got.Reason, tc.want, tc.reason)
			}
		})
	}
}

func TestJobSet(t *testing.T) {
	js := jobSet("team", "js", "load", "train", "check")
	timeline, err := json.Marshal(apis.Timeline{Stages: []apis.StageTimes{{
		Name: "train", Queued: metav1.NewTime(at(30)), Admitted: metav1.NewTime(at(32)), Ready: new(metav1.NewTime(at(35))), Counted: metav1.NewTime(at(40)),
		Earlier: []apis.HoldTimes{{Queued: metav1.NewTime(at(6)), Admitted: metav1.NewTime(at(7)), End: metav1.NewTime(at(9))}},
		Held:    map[corev1.ResourceName]int64{gpu: 64}, Idle: map[corev1.ResourceName]int64{gpu: 24},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	js.Annotations = map[string]string{apis.TimelineAnnotation: string(timeline)}
	js.Status.ReplicatedJobsStatus = []jobset.ReplicatedJobStatus{{Name: "load", Succeeded: 1}, {Name: "train", Active: 1}}
	reserved := func(seconds int) metav1.Condition {
		return condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", seconds)
	}
	admitted := func(seconds int) metav1.Condition {
		return condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", seconds)
	}
	load := stageWorkload(js, "load", reserved(5), admitted(5), condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, "Started", 10),
		condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 30))
	// It was evicted at 40, and is admitted again at 60.
	train := stageWorkload(js, "train", reserved(55), admitted(60), condition(kueue.WorkloadRequeued, metav1.ConditionTrue, "Preempted", 45))
	train.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", UnderlyingCause: "", Count: 1}}}
	check := stageWorkload(js, "check")
	check.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	m := dashboard.New()
	m.Observe(localQueue("team", "lq", "q"))
	m.Observe(js)
	answer := m.JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{load, train, check}}, at(70))
	var lines []string
	for _, st := range answer.Stages {
		line := fmt.Sprintf("%s %s pods=%d after=%v%s", st.Name, st.State, st.Pods, st.After, chart(&st))
		lines = append(lines, fmt.Sprintf("%s held=%d idle=%d evictions=%v", line, st.HeldSeconds[gpu], st.IdleSeconds[gpu], st.Evictions))
	}
	want := []string{
		"load Finished pods=2 after=[] waiting 0-5 idle 5-10 running 10-30 held=200 idle=40 evictions=[]",
		"train Starting pods=2 after=[{load Succeeded}] waiting 6-7 idle 7-9 waiting 30-32 idle 32-35 running 35-40 waiting 45-55 reserved 55-60 idle 60-now held=184 idle=144 evictions=[{Preempted  1}]",
		"check Gated pods=2 after=[{train Succeeded}] held=0 idle=0 evictions=[]",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if answer.ClusterQueue != "q" || answer.State != dashboard.JobSetWaiting || answer.Stages[0].Jobs.Succeeded != 1 {
		t.Errorf("ClusterQueue %q, state %q, Jobs %+v", answer.ClusterQueue, answer.State, answer.Stages[0].Jobs)
	}
}

// A list has what the stages of a JobSet hold together, and what the first pending one asks for, since when; growths come after the stages.
func TestJobSetsHoldAndAsk(t *testing.T) {
	js := jobSet("team", "js", "load", "serve", "train", "check")
	reserved := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 5)
	waits := condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", 20)
	members := map[string]*kueue.Workload{
		"load":  stageWorkload(js, "load", reserved, condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 30)),
		"serve": stageWorkload(js, "serve", reserved),
		"train": stageWorkload(js, "train", waits),
		"check": stageWorkload(js, "check"),
	}
	members["check"].Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	members["growth"] = stageWorkload(js, "growth", reserved)
	members["growth"].Labels[apis.GrowthLabel] = "1"
	members["grows"] = stageWorkload(js, "grows")
	members["grows"].Labels[apis.GrowthLabel] = "2"
	m := dashboard.New()
	m.Observe(localQueue("team", "lq", "q"))
	m.Observe(js)
	for i, stage := range []string{"load", "serve", "train", "check", "growth", "grows"} {
		members[stage].Labels[apis.StageIndexLabel] = strconv.Itoa(i % 4)
		members[stage].Status.ResourceRequests = []kueue.PodSetRequest{{Name: "main", Resources: corev1.ResourceList{gpu: *resource.NewQuantity(int64(i+1), resource.DecimalSI)}}}
		m.Observe(members[stage])
	}
	row := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}).Items[0]
	got := fmt.Sprintf("holds %v asks %v since %s", row.Held, row.Asks, row.WaitingSince.Sub(start))
	if want := "holds [{nvidia.com/gpu  16}] asks [{nvidia.com/gpu  3}] since 20s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A later stage of a failed JobSet has finished without quota: it waits no more.
func TestStageFinishedWithoutQuota(t *testing.T) {
	js := jobSet("team", "js", "a")
	w := stageWorkload(js, "a", condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Failed", 30))
	answer := dashboard.New().JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}}, at(70))
	if st := answer.Stages[0]; st.State != dashboard.Finished || len(st.Spans) != 0 {
		t.Errorf("the stage is %s with the spans %v", st.State, st.Spans)
	}
}

// A JobSet whose spec has no stage plan is shown with the reason.
func TestJobSetWithoutPlan(t *testing.T) {
	js := jobSet("team", "js", "a")
	js.Spec.ReplicatedJobs[0].DependsOn = []jobset.DependsOn{{Name: "missing", Status: jobset.DependencyComplete}}
	answer := dashboard.New().JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js}, start)
	if !strings.Contains(answer.Problem, "missing") || len(answer.Stages) != 0 {
		t.Errorf("problem %q, stages %v", answer.Problem, answer.Stages)
	}
}

func TestSearch(t *testing.T) {
	m := dashboard.New()
	for _, object := range []metav1.Object{
		clusterQueue("vision", "vision-cohort", "1"), localQueue("team", "television", "vision"), jobSet("team", "vision-1"), jobSet("team", "my-vision"), jobSet("team", "other"),
	} {
		m.Observe(object)
	}
	var found []string
	for _, f := range m.Search(dashboard.Viewer{}, " VISION ") {
		found = append(found, f.Kind+" "+f.Name)
	}
	want := []string{"ClusterQueue vision", "Cohort vision-cohort", "LocalQueue television", "JobSet vision-1", "JobSet my-vision"}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if found := m.Search(dashboard.Viewer{}, "  "); len(found) != 0 {
		t.Errorf("nothing finds %v", found)
	}
}

// Of the matches of a kind, the ten best are found, in whatever order the objects were observed.
func TestSearchFindsTheBest(t *testing.T) {
	m := dashboard.New()
	for i := range 30 {
		m.Observe(jobSet("team", fmt.Sprintf("a-tune-%d", i)))
	}
	for _, name := range []string{"tune-long", "tune-b", "tune-a", "my-tune"} {
		m.Observe(jobSet("team", name))
	}
	var found []string
	for _, f := range m.Search(dashboard.Viewer{}, "tune") {
		found = append(found, f.Name)
	}
	want := []string{"tune-a", "tune-b", "tune-long", "my-tune", "a-tune-0", "a-tune-1", "a-tune-2", "a-tune-3", "a-tune-4", "a-tune-5"}
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// Each minute of the last four hours has a sample, and each tenth one of the day before.
func TestHistory(t *testing.T) {
	const hours, fine = 30, 240
	m := dashboard.New()
	m.Sample(at(0))
	m.Observe(using(clusterQueue("q", "", "8"), "3", "3"))
	for minute := 1; minute <= hours*60; minute++ {
		m.Sample(at(60 * minute))
	}
	m.Observe(using(clusterQueue("q", "", "8"), "5", "5"))
	now := at(60*hours*60 + 1)
	answer, _ := m.Queue(dashboard.Viewer{}, "q", now)
	h := answer.History
	const count = fine + (24-4)*6 + 2 // also the first one, and now
	if len(h.Times) != count || len(h.Pending) != count || len(h.Used) != 1 || len(h.Used[0].Values) != count {
		t.Fatalf("%d times, %d pending, %d values, want %d", len(h.Times), len(h.Pending), len(h.Used[0].Values), count)
	}
	if age := now.Unix() - h.Times[0]; age > 24*3600+60 || age < 24*3600-660 {
		t.Errorf("the first sample is %d seconds old", age)
	}
	for i := range h.Times[:count-2] {
		apart, want := h.Times[i+1]-h.Times[i], int64(600)
		if now.Unix()-h.Times[i] < 4*3600 {
			want = 60
		}
		if apart != want && now.Unix()-h.Times[i+1] > 4*3600 || apart > want {
			t.Fatalf("samples %d and %d are %d seconds apart", i, i+1, apart)
		}
	}
	if *h.Used[0].Values[0] != 3 || *h.Used[0].Values[count-1] != 5 {
		t.Errorf("used %g, then %g", *h.Used[0].Values[0], *h.Used[0].Values[count-1])
	}
	m.Observe(clusterQueue("late", "", "1"))
	m.Sample(now)
	answer, _ = m.Queue(dashboard.Viewer{}, "late", now.Add(time.Minute))
	values := answer.History.Used[0].Values
	if n := len(values); n != len(answer.History.Times) || values[n-3] != nil || values[n-2] == nil {
		t.Errorf("%d values of a new ClusterQueue", len(values))
	}
}
