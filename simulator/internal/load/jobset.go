package load

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// addJobSet adds a JobSet, unless the manager would refuse or not manage it. A JobSet that is being deleted leaves its Jobs and quota Workloads.
func (l *loader) addJobSet(js *jobsetapi.JobSet) {
	js, _ = stageplan.Restored(js)
	key := types.NamespacedName{Namespace: js.Namespace, Name: js.Name}
	if isDeleted(js) {
		l.needOwner(key)
		return
	}
	if why := l.unmanaged(js); why != "" {
		l.leaveOut("JobSet", js, why)
		return
	}
	j, why := l.userJob(js)
	if why != "" {
		l.leaveOut("JobSet", js, why)
		return
	}
	l.UserJobs[key] = j
	l.JobSets[key] = js
	l.Plans[js.UID] = j.PlanObserved(js)
	l.JobSetQueue.Add(key)
}

// needOwner adds the submission of a JobSet that no longer exists, for the objects that it has left.
func (l *loader) needOwner(jobSet types.NamespacedName) {
	if l.UserJobs[jobSet] == nil {
		l.UserJobs[jobSet] = &cluster.UserJob{
			Submission: &scenario.Submission{Namespace: jobSet.Namespace, Name: jobSet.Name, IsJobSet: true, Plan: &stageplan.Plan{}, StopAfter: l.stopAfter},
			IsDeleted:  true,
		}
	}
}

// unmanaged says why the manager ignores a JobSet, or returns "".
func (l *loader) unmanaged(js *jobsetapi.JobSet) string {
	if apis.QueueNameOf(js.Labels) == "" && !ptr.Deref(l.config.ManageJobSetsWithoutQueueName, false) {
		return fmt.Sprintf("it names no LocalQueue in the label %s", apis.QueueLabel)
	}
	return l.unmanagedNamespace(js.Namespace)
}

// unmanagedNamespace says why the manager manages nothing in a namespace, or returns "".
func (l *loader) unmanagedNamespace(name string) string {
	why, isKnown := l.unselected[name]
	if !isKnown {
		why = l.whyUnselected(name)
		l.unselected[name] = why
	}
	return why
}

// whyUnselected says why the configuration does not select a namespace, or returns "".
func (l *loader) whyUnselected(name string) string {
	if l.config.ManagedNamespaceSelector == nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(l.config.ManagedNamespaceSelector)
	if err != nil {
		return fmt.Sprintf("managedNamespaceSelector of the configuration: %v", err)
	}
	namespace := map[string]string{corev1.LabelMetadataName: name}
	if o := l.Namespaces[name]; o != nil {
		namespace = o.Labels
	}
	if !selector.Matches(labels.Set(namespace)) {
		return "managedNamespaceSelector of the configuration does not select its namespace"
	}
	return ""
}

// userJob returns the submission of a JobSet, or why the manager would refuse it.
func (l *loader) userJob(js *jobsetapi.JobSet) (j *cluster.UserJob, why string) {
	if why = jobsetstate.Misuse(js); why != "" {
		return nil, why
	}
	plan, why := l.planOf(js)
	if why != "" {
		return nil, why
	}
	priority, why := l.priorityOf(js, podClassesOf(js))
	if why != "" {
		return nil, why
	}
	return &cluster.UserJob{
		Submission: &scenario.Submission{
			Name: js.Name, Namespace: js.Namespace, Queue: apis.QueueNameOf(js.Labels), IsJobSet: true, Plan: plan, Spec: &js.Spec,
			Priority: priority.Value, StageAdmission: js.Annotations[apis.StageAdmissionAnnotation],
			MaxSeconds: jobsetstate.ExecutionTimeOf(js), StopAfter: l.stopAfter,
		},
		PriorityClass: priority.Class, Created: js.CreationTimestamp.Time,
	}, ""
}

// A planned spec has the stage plan of the JobSets that share it, or says why the manager would refuse them.
type planned struct {
	spec *jobsetapi.JobSetSpec
	plan *stageplan.Plan
	why  string
}

// A sharing names the JobSets of a namespace that share their ReplicatedJobs.
type sharing struct {
	namespace      string
	replicatedJobs *jobsetapi.ReplicatedJob
}

// planOf returns the stage plan of a JobSet, or why the manager would refuse it. JobSets that share their specs share the plan, unless it depends on their
// quota Workloads.
func (l *loader) planOf(js *jobsetapi.JobSet) (plan *stageplan.Plan, why string) {
	if len(js.Spec.ReplicatedJobs) == 0 || slices.ContainsFunc(js.Spec.ReplicatedJobs, mayBeChargedOtherwise) {
		return l.newPlan(js)
	}
	key := sharing{js.Namespace, &js.Spec.ReplicatedJobs[0]}
	if i := slices.IndexFunc(l.plans[key], func(p planned) bool { return snapshot.IsSameSpec(p.spec, &js.Spec) }); i >= 0 {
		return l.plans[key][i].plan, l.plans[key][i].why
	}
	plan, why = l.newPlan(js)
	l.plans[key] = append(l.plans[key], planned{&js.Spec, plan, why})
	return plan, why
}

func (l *loader) newPlan(js *jobsetapi.JobSet) (plan *stageplan.Plan, why string) {
	spec, why := l.withClusterDefaults(js)
	if why != "" {
		return nil, why
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		return nil, err.Error()
	}
	return plan, ""
}

// mayBeChargedOtherwise reports whether quota may be charged for another pod template than that of a ReplicatedJob, which only a quota Workload has.
func mayBeChargedOtherwise(r jobsetapi.ReplicatedJob) bool {
	return len(r.Template.Spec.Template.Spec.ResourceClaims) > 0 || r.Template.Annotations[apis.GroupStartAnnotation] != ""
}

// withClusterDefaults returns the spec of a JobSet with what the API server adds to its pods, as the manager counts it: the overhead of their
// RuntimeClasses, the defaults of LimitRanges, and what is charged for devices. For pods that wait for their group to start, a snapshot lacks the
// container that the manager adds: their quota Workloads have it.
func (l *loader) withClusterDefaults(js *jobsetapi.JobSet) (spec *jobsetapi.JobSetSpec, why string) {
	spec = js.Spec.DeepCopy()
	for i := range spec.ReplicatedJobs {
		r := &spec.ReplicatedJobs[i]
		pod := &r.Template.Spec.Template
		if mayBeChargedOtherwise(*r) {
			if charged := l.chargedTemplate(js.UID, r.Name); charged != nil {
				*pod = *charged.DeepCopy()
				continue
			}
		}
		if problem := l.addDefaults(pod, js.Namespace); problem != nil {
			return nil, fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.spec.resourceClaims: %s", i, problem.Message)
		}
	}
	return spec, ""
}

// addDefaults adds to a pod template what the API server adds to its pods, and what is charged for devices.
func (l *loader) addDefaults(pod *corev1.PodTemplateSpec, namespace string) *device.Problem {
	var overhead corev1.ResourceList
	if name := pod.Spec.RuntimeClassName; name != nil && l.RuntimeClasses[*name] != nil && l.RuntimeClasses[*name].Overhead != nil {
		overhead = l.RuntimeClasses[*name].Overhead.PodFixed
	}
	limits := podresources.Merge(l.limits[namespace])
	pod.Spec = *limits.Effective(&pod.Spec, overhead)
	device.Forget(pod)
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	return l.devices.Charge(pod, l.claimTemplates[namespace])
}

// chargedTemplate returns the pod template of a pod set for which quota is charged, or nil.
func (l *loader) chargedTemplate(owner types.UID, podSet string) *corev1.PodTemplateSpec {
	for _, w := range l.workloads[owner] {
		for i := range w.Spec.PodSets {
			if w.Spec.PodSets[i].Name == kueue.NewPodSetReference(podSet) {
				return &w.Spec.PodSets[i].Template
			}
		}
	}
	return nil
}

// A podClass is the PriorityClass that a pod template names, and where.
type podClass struct{ name, of string }

func podClassesOf(js *jobsetapi.JobSet) []podClass {
	var all []podClass
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		all = append(all, podClass{r.Template.Spec.Template.Spec.PriorityClassName, fmt.Sprintf("its ReplicatedJob %q", r.Name)})
	}
	return all
}

// priorityOf returns the priority of a JobSet or a Job as the manager does, or why it is not known. Without a class, one that has quota Workloads keeps
// their priority: its class may have been deleted.
func (l *loader) priorityOf(job metav1.Object, podClasses []podClass) (priority jobsetstate.Priority, why string) {
	if name := job.GetLabels()[apis.PriorityClassLabel]; name != "" {
		if class := l.PriorityClasses[name]; class != nil {
			return jobsetstate.Priority{Value: class.Value, Class: kueue.NewWorkloadPriorityClassRef(name)}, ""
		}
		why = fmt.Sprintf("the WorkloadPriorityClass %q that its label %s names does not exist", name, apis.PriorityClassLabel)
	} else {
		class, problem := l.podPriorityClass(podClasses)
		if class != nil {
			value, ref := workloadstatus.PodPriority(class.Name, class.Value, *l.config.MaxPodPriority)
			return jobsetstate.Priority{Value: value, Class: ref}, ""
		}
		why = problem
	}
	if all := l.workloads[job.GetUID()]; len(all) > 0 {
		// A finished one keeps an earlier priority.
		w := all[max(0, slices.IndexFunc(all, func(w *kueue.Workload) bool { return !cluster.IsFinished(w) }))]
		return jobsetstate.Priority{Value: ptr.Deref(w.Spec.Priority, 0), Class: w.Spec.PriorityClassRef}, ""
	}
	return priority, why
}

// podPriorityClass returns the first PriorityClass among those of pod templates, else the default of the cluster, or nil. why is not empty
// if a pod template names one that does not exist.
func (l *loader) podPriorityClass(named []podClass) (class *schedulingv1.PriorityClass, why string) {
	isFound := func(class *schedulingv1.PriorityClass) bool { return class.GlobalDefault }
	if i := slices.IndexFunc(named, func(c podClass) bool { return c.name != "" }); i >= 0 {
		isFound = func(class *schedulingv1.PriorityClass) bool { return class.Name == named[i].name }
		why = fmt.Sprintf("the PriorityClass %q of %s does not exist", named[i].name, named[i].of)
	}
	if i := slices.IndexFunc(l.snapshot.PodPriorityClasses, isFound); i >= 0 {
		return l.snapshot.PodPriorityClasses[i], ""
	}
	return nil, why
}

// indexWorkloads finds the quota Workloads of each JobSet and queued Job, those of the first stage first.
func (l *loader) indexWorkloads() {
	for _, w := range l.snapshot.Workloads {
		if uid := types.UID(w.Labels[apis.JobUIDLabel]); w.Labels[apis.JobSetLabel]+w.Labels[apis.JobLabel] != "" {
			l.workloads[uid] = append(l.workloads[uid], w)
		}
	}
	for _, all := range l.workloads {
		slices.SortFunc(all, func(a, b *kueue.Workload) int {
			return cmp.Or(cmp.Compare(cluster.StageIndex(a), cluster.StageIndex(b)), cmp.Compare(a.Name, b.Name))
		})
	}
}
