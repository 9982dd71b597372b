package kueueday

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// GPU is the resource of the quota, and Namespace that of the Jobs.
const (
	GPU       = corev1.ResourceName("nvidia.com/gpu")
	Namespace = "team"
)

// A Write is an object as it was written.
type Write struct {
	At     time.Time
	Verb   string
	Object snapshot.Object
}

// Queues returns the objects that exist when the day begins.
func (d *Day) Queues() *snapshot.Snapshot {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(d.Begin.Add(-time.Hour))}
	}
	return &snapshot.Snapshot{
		ResourceFlavors: []*kueue.ResourceFlavor{{ObjectMeta: meta("", "gpus")}},
		ClusterQueues: []*kueue.ClusterQueue{{ObjectMeta: meta("", "cluster"), Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{GPU}, Flavors: []kueue.FlavorQuotas{{
				Name: "gpus", Resources: []kueue.ResourceQuota{{Name: GPU, NominalQuota: gpus(d.GPUs)}},
			}}}},
		}}},
		LocalQueues: []*kueue.LocalQueue{{ObjectMeta: meta(Namespace, "queue"), Spec: kueue.LocalQueueSpec{ClusterQueue: "cluster"}}},
	}
}

func gpus(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// Writes returns all writes of the day in the order of time, of JobSets, of Jobs and of Kueue's Workloads.
func (d *Day) Writes() []Write {
	var all []Write
	played := d.Play()
	for i := range played {
		all = append(all, (&player{day: d, Played: &played[i]}).writes()...)
	}
	slices.SortStableFunc(all, func(a, b Write) int { return a.At.Compare(b.At) })
	for i := range all {
		all[i].Object.SetResourceVersion(strconv.Itoa(i + 1))
	}
	return all
}

// Snapshot returns the objects as they are at a time.
func (d *Day) Snapshot(at time.Time) *snapshot.Snapshot {
	s := d.Queues()
	s.TakenAt = at
	for _, w := range d.Writes() {
		if !w.At.After(at) {
			s = snapshot.KindOf(w.Object).With(s, w.Object)
		}
	}
	return s
}

// AuditLog writes the events of an API server that logs at a level. The first ones list the queues.
func (d *Day) AuditLog(out io.Writer, level string) error {
	encoder := json.NewEncoder(out)
	q := d.Queues()
	lists := []Write{
		{d.Begin, "list", q.ResourceFlavors[0]}, {d.Begin, "list", q.ClusterQueues[0]}, {d.Begin, "list", q.LocalQueues[0]},
	}
	for _, w := range append(lists, d.Writes()...) {
		kind := snapshot.KindOf(w.Object)
		event := map[string]any{
			"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level, "stage": "ResponseComplete", "verb": w.Verb,
			"objectRef": map[string]any{
				"resource": kind.Resource, "apiGroup": kind.GVK.Group, "apiVersion": kind.GVK.Version, "namespace": w.Object.GetNamespace(), "name": w.Object.GetName(),
			},
			"responseStatus": map[string]any{"code": 200}, "stageTimestamp": metav1.NewMicroTime(w.At),
		}
		if level == "RequestResponse" {
			event["responseObject"] = w.Object
			if w.Verb == "list" {
				event["responseObject"] = map[string]any{"kind": kind.GVK.Kind + "List", "items": []snapshot.Object{w.Object}}
			}
		}
		if err := encoder.Encode(event); err != nil {
			return err
		}
	}
	return nil
}

// A player writes the objects of one Job.
type player struct {
	*Played

	day *Day
	all []Write
}

func (p *player) at(after time.Duration) metav1.Time { return metav1.NewTime(p.day.Begin.Add(after)) }

func (p *player) write(after time.Duration, verb string, object snapshot.Object) {
	p.all = append(p.all, Write{p.day.Begin.Add(after), verb, object})
}

func (p *player) meta(kind, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: types.UID(kind + "-" + name), CreationTimestamp: p.at(p.At)}
}

func (p *player) writes() []Write {
	js, w := p.jobSet(), p.workload()
	p.write(p.At, "create", js)
	p.write(p.At, "create", w)
	if p.Admitted < 0 {
		return p.all
	}
	w = w.DeepCopy()
	w.Status.Admission = p.admission()
	w.Status.Conditions = []metav1.Condition{p.condition(kueue.WorkloadQuotaReserved, p.Admitted), p.condition(kueue.WorkloadAdmitted, p.Admitted)}
	p.write(p.Admitted, "patch", w)
	for _, i := range p.inOrderOfEnd() {
		p.job(i)
		w = w.DeepCopy()
		w.Status.ReclaimablePods = append(w.Status.ReclaimablePods, kueue.ReclaimablePod{Name: kueue.PodSetReference(p.Stages[i].Name), Count: int32(p.Stages[i].Pods)})
		p.write(p.Starts[i]+p.Stages[i].Run, "patch", w)
	}
	js = js.DeepCopy()
	js.Status.Conditions = []metav1.Condition{p.condition(string(jobset.JobSetCompleted), p.Finished)}
	p.write(p.Finished, "update", js)
	w = w.DeepCopy()
	w.Status.Conditions = append(w.Status.Conditions, p.condition(kueue.WorkloadFinished, p.Finished))
	p.write(p.Finished, "patch", w)
	return p.all
}

// inOrderOfEnd returns the indexes of the stages in the order in which they succeed.
func (p *player) inOrderOfEnd() []int {
	indexes := make([]int, len(p.Stages))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return cmp.Compare(p.Starts[a]+p.Stages[a].Run, p.Starts[b]+p.Stages[b].Run) })
	return indexes
}

func (p *player) condition(name string, after time.Duration) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, LastTransitionTime: p.at(after), Reason: "Played"}
}

func (p *player) jobSet() *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: p.meta("jobset", p.Name)}
	js.Labels = map[string]string{apis.QueueLabel: "queue"}
	for i := range p.Stages {
		r := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: p.Stages[i].Name, Replicas: 1}}
		r.Template.Spec = p.jobSpec(i)
		if i > 0 {
			status := jobset.DependencyComplete
			if p.Stages[i].AfterReady {
				status = jobset.DependencyReady
			}
			r.DependsOn = []jobset.DependsOn{{Name: p.Stages[i-1].Name, Status: status}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	return js
}

func (p *player) jobSpec(i int) batchv1.JobSpec {
	return batchv1.JobSpec{Parallelism: new(int32(p.Stages[i].Pods)), Completions: new(int32(p.Stages[i].Pods)), Template: template()}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "example.com/main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{GPU: gpus(1)}},
	}}}}
}

// workload returns the Workload that Kueue makes for a JobSet.
func (p *player) workload() *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: p.meta("workload", "jobset-"+p.Name+"-a1b2c"), Spec: kueue.WorkloadSpec{QueueName: "queue"}}
	w.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobset.GroupVersion.String(), Kind: "JobSet", Name: p.Name, UID: types.UID("jobset-" + p.Name), Controller: new(true)}}
	for i := range p.Stages {
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: kueue.PodSetReference(p.Stages[i].Name), Count: int32(p.Stages[i].Pods), Template: template()})
	}
	return w
}

func (p *player) admission() *kueue.Admission {
	a := &kueue.Admission{ClusterQueue: "cluster"}
	for i := range p.Stages {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: kueue.PodSetReference(p.Stages[i].Name), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{GPU: "gpus"},
			ResourceUsage: corev1.ResourceList{GPU: gpus(p.Stages[i].Pods)}, Count: new(int32(p.Stages[i].Pods)),
		})
	}
	return a
}

// job writes the Job of a stage: started, ready and succeeded.
func (p *player) job(i int) {
	stage := &p.Stages[i]
	pods := int32(stage.Pods)
	job := &batchv1.Job{ObjectMeta: p.meta("job", fmt.Sprintf("%s-%s-0", p.Name, stage.Name)), Spec: p.jobSpec(i)}
	job.CreationTimestamp = p.at(p.Starts[i])
	job.Labels = map[string]string{
		jobset.JobSetNameKey: p.Name, jobset.ReplicatedJobNameKey: stage.Name, jobset.JobIndexKey: "0", "jobset.sigs.k8s.io/restart-attempt": "0",
	}
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobset.GroupVersion.String(), Kind: "JobSet", Name: p.Name, UID: types.UID("jobset-" + p.Name), Controller: new(true)}}
	job.Status = batchv1.JobStatus{StartTime: new(p.at(p.Starts[i])), Active: pods, Ready: new(int32(0))}
	p.write(p.Starts[i], "create", job)
	job = job.DeepCopy()
	job.Status.Ready = &pods
	p.write(p.Starts[i]+stage.Ready, "patch", job)
	job = job.DeepCopy()
	end := p.at(p.Starts[i] + stage.Run)
	job.Status = batchv1.JobStatus{
		StartTime: job.Status.StartTime, CompletionTime: &end, Succeeded: pods, Ready: new(int32(0)),
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: end}},
	}
	p.write(p.Starts[i]+stage.Run, "patch", job)
}
