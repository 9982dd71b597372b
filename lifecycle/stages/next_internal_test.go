package stages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A world is the start of a case of TestDesired: init -Succeeded-> train, with one Job each.
type world struct {
	started, suspended bool
	// ready lets train start when init is ready, instead of when it has succeeded. gang makes the JobSet one gang.
	ready, gang bool
	restarts    int32
	over        jobset.JobSetConditionType
	// workloads and jobs by stage: a space-separated list of words, see build. Several Jobs of a stage are separated by slashes.
	workloads, jobs map[string]string
	// pods lists the ReplicatedJobs that have a pod which is not terminal, as NAME, NAME:JOB or NAME:JOB:INDEX.
	pods []string
}

func TestDesired(t *testing.T) {
	cases := map[string]struct {
		world world
		// want has one line for each write, in order.
		want []string
	}{
		"a new JobSet gets a Workload for each stage, and only the first is open": {
			want: []string{"create init gates=", "create train gates=tranche.dev/stage"},
		},
		"an admitted first stage resumes the JobSet and releases its Job": {
			world: world{workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"start", "release init-0 node=a100"},
		},
		"a stage that the engine no longer charges releases nothing": {
			world: world{started: true, workloads: map[string]string{"init": "admitted uncharged", "train": "closed"}, jobs: map[string]string{"init": "held"}},
		},
		"a stage that has succeeded opens the next before it finishes": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete", "train": "held"}},
			want:  []string{"open train", "finish init=Succeeded"},
		},
		"a stage keeps its quota while a pod of it is not terminal": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "waiting"}, jobs: map[string]string{"init": "complete"}, pods: []string{"init"}},
			want:  []string{"ready init=True"},
		},
		"a failed Job opens nothing": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "failed"}},
		},
		"a stage that loses a pod says that it waits for recovery": {
			world: world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"ready init=False"},
		},
		"a failed JobSet finishes every stage": {
			world: world{started: true, over: jobset.JobSetFailed, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "failed"}},
			want:  []string{"finish init=Failed", "finish train=Failed"},
		},
		"a finished stage may disappear": {
			world: world{started: true, workloads: map[string]string{"init": "finished pinned", "train": "waiting"}, jobs: map[string]string{"init": "complete"}},
			want:  []string{"unpin init"},
		},
		"suspending gates every stage": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"gate init=tranche.dev/suspended", "gate train=tranche.dev/stage,tranche.dev/suspended"},
		},
		"a suspended stage releases its quota when its pods have terminated": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted suspended", "train": "closed suspended"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"give back init"},
		},
		"a suspended stage with a pod gives nothing back": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted suspended", "train": "closed suspended"}, jobs: map[string]string{"init": "held"}, pods: []string{"init"}},
		},
		"resuming takes the gate away": {
			world: world{started: true, workloads: map[string]string{"init": "suspended", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"gate init="},
		},
		"a restart runs a finished stage again and closes the one that holds quota": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "finished attempt0", "train": "admitted attempt0"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"gate train=tranche.dev/stage", "remove init"},
		},
		"a stage that a restart has gated no longer reports on its pods": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "admitted", "train": "admitted closed ready"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"ready train="},
		},
		"a stage that is opened again says first from when on its pods have to become ready": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "admitted", "train": "admitted closed"}, jobs: map[string]string{"init": "complete"}},
			want:  []string{"finish init=Succeeded", "ready train=False"},
		},
		"a suspended stage says that its pods have to start again": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted suspended ready", "train": "closed suspended"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"ready init=False"},
		},
		"a stage that has finished otherwise than by success runs again": {
			world: world{started: true, workloads: map[string]string{"init": "finished otherwise", "train": "closed"}, jobs: map[string]string{"init": "held", "train": "held"}},
			want:  []string{"remove init"},
		},
		"a stage whose user changed the queue between the reservation and the start is queued again": {
			world: world{workloads: map[string]string{"init": "admitted moved", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"remove init"},
		},
		"a stage that runs on quota of another queue stays there": {
			world: world{started: true, workloads: map[string]string{"init": "admitted moved pinned", "train": "closed"}, jobs: map[string]string{"init": "running"}},
		},
		"a deleted Workload holds its Jobs before it goes": {
			world: world{started: true, workloads: map[string]string{"init": "admitted deleted pinned", "train": "closed"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"hold init-0"},
		},
		"the Jobs of a stage whose admission another client has removed are held": {
			world: world{started: true, ready: true, workloads: map[string]string{"init": "admitted", "train": "waiting ready"}, jobs: map[string]string{"init": "running", "train": "running up/running succeeding/released/held"}},
			want:  []string{"hold train-0", "ready train=False"},
		},
		"they start again when it is admitted again and their pods have terminated": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held flavored/held flavored"}, pods: []string{"init:init-1"}},
			want:  []string{"release init-0 node=a100"},
		},
		"a deleted Workload goes only after its Jobs that have partly run are recreated": {
			world: world{started: true, workloads: map[string]string{"init": "admitted deleted pinned", "train": "closed"}, jobs: map[string]string{"init": "held progress"}},
			want:  []string{"remake init-0"},
		},
		"a deleted Workload goes when nothing of it runs": {
			world: world{started: true, workloads: map[string]string{"init": "admitted deleted pinned", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"unpin init"},
		},
		"a Job is not released while a pod of one before it still runs": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held/held"}, pods: []string{"init:init-0"}},
			want:  []string{"release init-1 node=a100"},
		},
		"a Job that asks for more than its JobSet stays held": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held greedy"}},
			want:  []string{`complain the Job "init-0" stays held: its pods request 2 cpu each, and quota is charged for 1; delete the Job`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, render(Next(c.world.build(t)))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// build turns the words into objects.
func (w world) build(t *testing.T) *jobsetstate.Snapshot {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "js", UID: "js-uid", Labels: map[string]string{apis.QueueLabel: "queue"}, Annotations: map[string]string{},
	}}
	for _, name := range []string{"init", "train"} {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{
			Name: name, Replicas: int32(strings.Count(w.jobs[name], "/") + 1), Template: batchv1.JobTemplateSpec{Spec: jobSpec("1")},
		}})
	}
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{
		{TargetReplicatedJobs: []string{"init"}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus},
	}}
	if w.ready {
		js.Spec.StartupPolicy.Rules[0].WaitForReplicatedJobsStatus = jobsetapi.ReadyStatus
	}
	if w.gang {
		js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	}
	js.Spec.Suspend = new(!w.started || w.suspended)
	js.Status.Restarts = w.restarts
	if w.started {
		js.Annotations[apis.StartedAnnotation] = "true"
	}
	if w.over != "" {
		js.Status.Conditions = []metav1.Condition{{Type: string(w.over), Status: metav1.ConditionTrue}}
	}
	s := &jobsetstate.Snapshot{
		Key: types.NamespacedName{Namespace: "ns", Name: "js"}, JobSet: js, Plan: planOf(t, js), Charged: map[types.UID]bool{}, Now: now(),
		Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{"a100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"node": "a100"}}}},
	}
	for i, name := range []string{"init", "train"} {
		if words, ok := w.workloads[name]; ok {
			s.Owned.Workloads = append(s.Owned.Workloads, w.workload(s, i, strings.Fields(words)))
		}
		if all, ok := w.jobs[name]; ok {
			for k, words := range strings.Split(all, "/") {
				s.Owned.Jobs = append(s.Owned.Jobs, w.job(fmt.Sprintf("%s-%d", name, k), name, strings.Fields(words)))
			}
		}
	}
	for _, pod := range w.pods {
		name, job, _ := strings.Cut(pod, ":")
		job, index, _ := strings.Cut(job, ":")
		s.Owned.Pods = append(s.Owned.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			jobset.ReplicatedJobNameKey: name, batchv1.JobNameLabel: job, batchv1.JobCompletionIndexAnnotation: index,
			jobset.JobIndexKey: job[strings.LastIndex(job, "-")+1:],
		}}})
	}
	return s
}

func planOf(t *testing.T, js *jobsetapi.JobSet) *stageplan.Plan {
	t.Helper()
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func jobSpec(cpus string) batchv1.JobSpec {
	return batchv1.JobSpec{Parallelism: new(int32(1)), Completions: new(int32(1)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: quantities(cpus)}}},
	}}}
}

// workload returns the quota Workload of a stage as the controller would create it, changed as the words say.
func (w world) workload(s *jobsetstate.Snapshot, index int, words []string) *kueue.Workload {
	has := func(word string) bool { return slices.Contains(words, word) }
	st := &stage{Stage: &s.Plan.Stages[index], index: index, open: !has("closed")}
	workload := newWorkload(s, st)
	workload.Name = st.Name
	workload.UID = types.UID(st.Name)
	gates := quotaworkload.Gates(workload)
	gates = slices.DeleteFunc(gates, func(gate string) bool { return gate == apis.SuspendedGate })
	if has("suspended") {
		gates = append(gates, apis.SuspendedGate)
	}
	delete(workload.Annotations, apis.AdmissionGatedByAnnotation)
	if len(gates) > 0 {
		workload.Annotations[apis.AdmissionGatedByAnnotation] = strings.Join(gates, ",")
	}
	if has("attempt0") {
		workload.Annotations[apis.AttemptAnnotation] = "0"
	}
	if !has("pinned") {
		workload.Finalizers = nil
	}
	if has("deleted") {
		workload.DeletionTimestamp = new(metav1.Now())
	}
	condition := func(conditionType string, status metav1.ConditionStatus) {
		workload.Status.Conditions = append(workload.Status.Conditions, metav1.Condition{Type: conditionType, Status: status})
	}
	if has("admitted") {
		workload.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: kueue.PodSetReference(st.Name), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "a100"},
		}}}
		condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
		condition(kueue.WorkloadAdmitted, metav1.ConditionTrue)
		s.Charged[workload.UID] = !has("uncharged")
	}
	if has("moved") {
		workload.Spec.QueueName = "other"
	}
	if has("ready") {
		condition(kueue.WorkloadPodsReady, metav1.ConditionTrue)
	}
	if has("unready") {
		condition(kueue.WorkloadPodsReady, metav1.ConditionFalse)
	}
	if has("evicted") {
		condition(kueue.WorkloadEvicted, metav1.ConditionTrue)
		workload.Status.Conditions[len(workload.Status.Conditions)-1].Reason = kueue.WorkloadEvictedByPreemption
	}
	if has("inactive") {
		workload.Spec.Active = new(false)
	}
	for _, word := range words {
		if jobs, ok := strings.CutPrefix(word, "succeeded:"); ok {
			workload.Annotations[apis.SucceededJobsAnnotation] = st.Name + "=" + jobs
		}
		if pods, ok := strings.CutPrefix(word, "for"); ok {
			count, _ := strconv.ParseInt(pods, 10, 32)
			workload.Status.Admission.PodSetAssignments[0].Count = new(int32(count))
		}
		if pods, ok := strings.CutPrefix(word, "reclaimed"); ok {
			count, _ := strconv.ParseInt(pods, 10, 32)
			workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: kueue.PodSetReference(st.Name), Count: int32(count)}}
		}
	}
	if has("of3") {
		workload.Spec.PodSets[0].Count = 3
	}
	if has("finished") {
		condition(kueue.WorkloadFinished, metav1.ConditionTrue)
		workload.Status.Conditions[len(workload.Status.Conditions)-1].Reason = kueue.WorkloadFinishedReasonSucceeded
	}
	if has("otherwise") {
		workload.Status.Conditions[len(workload.Status.Conditions)-1].Reason = kueue.WorkloadFinishedReasonFailed
	}
	return workload
}

func (w world) job(name, replicatedJob string, words []string) *batchv1.Job {
	has := func(word string) bool { return slices.Contains(words, word) }
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{
			jobset.ReplicatedJobNameKey: replicatedJob, jobsetstate.RestartAttemptLabel: fmt.Sprint(w.restarts), jobset.JobIndexKey: name[strings.LastIndex(name, "-")+1:],
		}},
		Spec: jobSpec("1"),
	}
	if has("greedy") {
		job.Spec = jobSpec("2")
	}
	if has("wide") {
		job.Spec.Parallelism, job.Spec.Completions = new(int32(3)), new(int32(3))
	}
	job.Spec.Suspend = new(has("held") || has("stopping"))
	// The Job controller has noticed that the Job is held, or not yet that it was released.
	if has("held") || has("released") {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	}
	if has("up") {
		job.Status.Ready = new(int32(1))
	}
	if has("progress") {
		job.Status.Succeeded = 1
	}
	if has("started") {
		job.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	}
	for word, condition := range map[string]batchv1.JobConditionType{"succeeding": batchv1.JobSuccessCriteriaMet, "failing": batchv1.JobFailureTarget} {
		if has(word) {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
		}
	}
	if has("deleted") {
		job.DeletionTimestamp = new(metav1.Now())
	}
	if has("flavored") {
		job.Annotations = map[string]string{apis.FlavorNodeLabelsAnnotation: "node"}
	}
	for word, condition := range map[string]batchv1.JobConditionType{"complete": batchv1.JobComplete, "failed": batchv1.JobFailed} {
		if has(word) {
			job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
		}
	}
	return job
}

// render turns the actions into lines, in the order of the writes.
func render(w *Step) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, x := range w.Workloads(quotastep.Create) {
		add("create %s gates=%s", x.Labels[apis.StageLabel], x.Annotations[apis.AdmissionGatedByAnnotation])
	}
	for _, x := range w.Of(quotastep.Evict) {
		add("evict %s", x.Workload.Name)
	}
	for _, x := range w.Of(quotastep.Change) {
		if isRecord(x) {
			continue // TestDesiredOfSucceededJobs is about those
		}
		if count := x.After.Spec.PodSets[0].Count; count != x.Workload.Spec.PodSets[0].Count {
			add("resize %s=%d", x.After.Name, count)
		} else if !quotaworkload.HasSameBar(x.Workload, x.After) {
			add("bar %s=%s", x.After.Name, strings.Join(quotaworkload.Gates(x.After), ","))
		} else if quotaworkload.HasGate(x.Workload, apis.StageGate) && !quotaworkload.HasGate(x.After, apis.StageGate) {
			add("open %s", x.After.Name)
		} else {
			add("gate %s=%s", x.After.Name, x.After.Annotations[apis.AdmissionGatedByAnnotation])
		}
	}
	if w.SetScheduler {
		add("name")
	}
	if w.Pause != "" {
		add("pause for %s", w.Pause)
	}
	if w.Start {
		add("start")
	}
	for _, x := range w.DeleteGangs {
		add("disperse %s %s", x.GetKind(), x.GetName())
	}
	for _, x := range w.EnsureGangs {
		for _, object := range x.Missing {
			add("gather %s %s", object.GetKind(), object.GetName())
		}
		for _, drifted := range x.Drifted {
			add("fix %s %s", drifted.Existing.GetKind(), drifted.Existing.GetName())
		}
	}
	for _, x := range w.ReleaseJobs {
		for _, job := range x.Jobs {
			add("release %s node=%s", job.Name, job.Spec.Template.Spec.NodeSelector["node"])
		}
	}
	for _, x := range w.ResizeJobs {
		for _, job := range x.After {
			add("grow %s=%d/%d", job.Name, *job.Spec.Parallelism, *job.Spec.Completions)
		}
	}
	for _, x := range w.HoldJobs {
		add("hold %s", x.Name)
	}
	for _, x := range w.SkipJobs {
		add("skip %s", x.Name)
	}
	for _, x := range w.ConcludeJobs {
		add("conclude %s", x.Name)
	}
	for _, x := range w.RecreateJobs {
		add("remake %s", x.Name)
	}
	for _, x := range w.RestoreJobs {
		add("restore %s", x.Name)
	}
	for _, x := range w.Of(quotastep.Progress) {
		switch stage := x.Workload.Labels[apis.StageLabel]; {
		case x.HasSucceeded && w.JobSetSucceeds:
			add("finish %s=%s, the last", stage, x.Finished.Reason)
		case x.Finished != nil:
			add("finish %s=%s", stage, x.Finished.Reason)
		default:
			add("ready %s=%s", stage, x.Ready.Status)
		}
	}
	for _, x := range w.Of(quotastep.Reclaim) {
		line := "reclaim " + x.Workload.Name
		for _, pods := range x.Reclaimable {
			line += fmt.Sprintf(" %s=%d", pods.Name, pods.Count)
		}
		lines = append(lines, line)
	}
	for _, x := range w.Of(quotastep.Release, quotastep.Reopen, quotastep.RemoveFinalizer, quotastep.Delete) {
		verb := map[quotastep.Kind]string{quotastep.Release: "give back", quotastep.Reopen: "remove", quotastep.RemoveFinalizer: "unpin", quotastep.Delete: "drop"}[x.Kind]
		add("%s %s", verb, x.Workload.Name)
	}
	for _, x := range w.Workloads(quotastep.Grow) {
		add("ask %s=%d on %s", x.Labels[apis.GrowthLabel], x.Spec.PodSets[0].Count, x.Annotations[apis.FlavorsAnnotation])
	}
	for _, x := range w.Complaints {
		add("complain %s", x)
	}
	return lines
}

// isRecord reports whether a change affects only the record of succeeded Jobs.
func isRecord(c quotastep.Write) bool {
	return c.After.Annotations[apis.SucceededJobsAnnotation] != c.Workload.Annotations[apis.SucceededJobsAnnotation] &&
		c.After.Annotations[apis.AdmissionGatedByAnnotation] == c.Workload.Annotations[apis.AdmissionGatedByAnnotation]
}

func TestWorkloadName(t *testing.T) {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "fine-tune", UID: "2a1b"}}
	one := &stageplan.Plan{Stages: make([]stageplan.Stage, 1)}
	two := &stageplan.Plan{Stages: []stageplan.Stage{{Name: "init"}, {Name: "ps.worker"}}}
	cases := map[string]struct {
		plan          *stageplan.Plan
		index, growth int
		want          string
	}{
		// The name that Kueue v0.19.2 gives the Workload of a JobSet with this name and UID.
		"one stage":    {one, 0, 0, "jobset-fine-tune-cdf2a"},
		"first stage":  {two, 0, 0, "jobset-fine-tune-0-init-1831c"},
		"second stage": {two, 1, 0, "jobset-fine-tune-1-ps.worker-78771"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := jobsetstate.WorkloadName(js, c.plan, c.index, c.growth); got != c.want {
				t.Errorf("workloadName = %q, want %q", got, c.want)
			}
		})
	}
}

func quantities(cpus string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
}

// The schema of quota Workloads rejects other changes of the class while they hold quota, which would stop their JobSets.
func TestPriorityOfHeldQuota(t *testing.T) {
	high, low := kueue.NewWorkloadPriorityClassRef("high"), kueue.NewWorkloadPriorityClassRef("low")
	pod, other := kueue.NewPodPriorityClassRef("pod"), kueue.NewPodPriorityClassRef("other")
	cases := map[string]struct {
		state         string
		before, after *kueue.PriorityClassRef
		wantChange    bool
	}{
		"a class where none was":              {"admitted", nil, high, false},
		"no class":                            {"admitted", pod, nil, false},
		"a class of another kind":             {"admitted", pod, high, false},
		"another PriorityClass":               {"admitted", pod, other, false},
		"another WorkloadPriorityClass":       {"admitted", low, high, true},
		"another value of the same class":     {"admitted", pod, pod, true},
		"a class where none was, no quota":    {"waiting", nil, high, true},
		"a class of another kind, no quota":   {"waiting", pod, high, true},
		"another PriorityClass, and no quota": {"waiting", pod, other, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := world{started: true, workloads: map[string]string{"init": c.state, "train": "closed"}}.build(t)
			for _, workload := range s.Owned.Workloads {
				workload.Spec.Priority, workload.Spec.PriorityClassRef = new(int32(1)), c.before
			}
			s.Priority = jobsetstate.Priority{Value: 2, Class: c.after}
			changed := slices.ContainsFunc(Next(s).Of(quotastep.Change), func(x quotastep.Write) bool { return x.After.Name == "init" })
			if changed != c.wantChange {
				t.Errorf("changed = %t, want %t", changed, c.wantChange)
			}
		})
	}
}

// now returns the time of the tests, in the precision of objects.
func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }
