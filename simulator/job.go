package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// job is a submission. The state of a JobSet is in the objects.
type job struct {
	*scenario.Submission
	created time.Time
	// settings are the changes of set lines, which also apply to quota Workloads that are recreated.
	settings  []scenario.Set
	isDeleted bool
	// plain is the state of a job that is no JobSet, or nil.
	plain *plainJob
}

func (j *job) key() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Name}
}

func (j *job) classRef() *kueue.PriorityClassRef {
	if j.Class == "" {
		return nil
	}
	return kueue.NewWorkloadPriorityClassRef(j.Class)
}

// submit creates a job.
func (s *simulation) submit(submission scenario.Submission) error {
	sub := &submission
	s.needNamespace(sub.Namespace)
	j := &job{Submission: sub, created: s.time()}
	if class := s.objects.classes[sub.Class]; class != nil {
		sub.Priority = class.Value
	} else if sub.Class != "" {
		return fmt.Errorf("there is no priority class %q: declare it with priorityclass", sub.Class)
	}
	if s.objects.workloads[j.key()] != nil {
		return fmt.Errorf("there is a quota Workload %s already: take another name", j.key())
	}
	s.jobs[sub.Name] = j
	if !sub.IsJobSet {
		s.submitPlain(j)
		return nil
	}
	s.putJobSet(j.newJobSet())
	s.putPlan(j)
	for len(s.jobSetQueue.changed) > 0 {
		s.reconcileJobSets()
	}
	return nil
}

// newJobSet returns the JobSet of a submission as the admission policies change it: suspended, and with held Jobs.
func (j *job) newJobSet() *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Labels: map[string]string{apis.QueueLabel: j.Queue}, Annotations: map[string]string{},
		},
		Spec: *j.Spec.DeepCopy(),
	}
	if j.Class != "" {
		js.Labels[apis.PriorityClassLabel] = j.Class
	}
	if j.MaxSeconds != nil {
		js.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(*j.MaxSeconds))
	}
	if j.StageAdmission != "" {
		js.Annotations[apis.StageAdmissionAnnotation] = j.StageAdmission
	}
	quotaworkload.SetGates(js, j.Gates)
	js.Spec.Suspend = new(true)
	for i := range js.Spec.ReplicatedJobs {
		js.Spec.ReplicatedJobs[i].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
	}
	return js
}

// putPlan makes the engine observe the plan of a JobSet.
func (s *simulation) putPlan(j *job) {
	js := s.objects.jobSets[j.key()]
	plan := admission.PlanObserved{
		JobSet: j.key(), UID: js.UID, Submitted: j.created, StageAdmission: j.StageAdmission, Plan: j.Plan,
	}
	s.objects.plans[js.UID] = plan
	s.observe(plan)
}

// ownerOf returns the job that a quota Workload belongs to.
func (s *simulation) ownerOf(w *kueue.Workload) *job {
	return s.jobs[cmp.Or(w.Labels[apis.JobSetLabel], w.Name)]
}

// workloadsOf returns the quota Workloads of a job, those of a stage before those of its growths.
func (s *simulation) workloadsOf(j *job) []*kueue.Workload {
	if j.IsJobSet {
		return s.workloadsOfJobSet(j.key())
	}
	if w := s.objects.workloads[j.key()]; w != nil {
		return []*kueue.Workload{w}
	}
	return nil
}

func compareWorkloads(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(stageIndex(a), stageIndex(b)), cmp.Compare(jobsetstate.GrowthNumber(a), jobsetstate.GrowthNumber(b)))
}

func stageIndex(w *kueue.Workload) int {
	index, _ := strconv.Atoi(w.Labels[apis.StageIndexLabel])
	return index
}

// subjectOf returns the name of a quota Workload in the timeline: after its stage.
func (s *simulation) subjectOf(w *kueue.Workload) string {
	stage, growth := w.Labels[apis.StageLabel], jobsetstate.GrowthNumber(w)
	switch {
	case stage == "":
		return w.Name
	case growth > 0:
		return fmt.Sprintf("%s/%s+%d", w.Labels[apis.JobSetLabel], stage, growth)
	}
	return w.Labels[apis.JobSetLabel] + "/" + stage
}

// subject returns the name of a quota Workload in the timeline, by its key.
func (s *simulation) subject(key admission.StageKey) string {
	if w := s.objects.workloads[key]; w != nil {
		return s.subjectOf(w)
	}
	return key.String()
}

// concerns reports whether a target names a quota Workload: the job names all, and a stage or a ReplicatedJob of it that of the stage.
func (s *simulation) concerns(t scenario.Target, w *kueue.Workload) bool {
	j := s.ownerOf(w)
	switch {
	case t.Name != j.Name:
		return false
	case t.Part == "":
		return true
	}
	stage := &j.Plan.Stages[stageIndex(w)]
	return t.Growth == jobsetstate.GrowthNumber(w) && (t.Part == stage.Name || slices.Contains(stage.ReplicatedJobs, t.Part))
}

// put writes a quota Workload.
func (s *simulation) put(w *kueue.Workload) {
	s.objects.stamp(w, s.time())
	key := keyOf(w)
	s.objects.workloads[key] = w
	s.workQueue.add(key)
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		js := types.NamespacedName{Namespace: w.Namespace, Name: name}
		if s.byJobSet[js] == nil {
			s.byJobSet[js] = map[admission.StageKey]bool{}
		}
		s.byJobSet[js][key] = true
	}
	s.touch(w.Namespace, cmp.Or(w.Labels[apis.JobSetLabel], w.Name))
	s.observe(admission.WorkloadObserved{Workload: w.DeepCopy()})
}

// patch changes the spec and the annotations of a quota Workload, and leaves its status as it is now.
func (s *simulation) patch(before, after *kueue.Workload) {
	now := s.objects.workloads[keyOf(before)]
	if now == nil {
		return
	}
	patched := now.DeepCopy()
	patched.Spec, patched.Annotations = *after.Spec.DeepCopy(), maps.Clone(after.Annotations)
	if !equality.Semantic.DeepEqual(now.Spec, patched.Spec) {
		patched.Generation++
	}
	s.put(patched)
}

func keyOf(w *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: w.Namespace, Name: w.Name}
}

// deleteWorkload deletes a quota Workload, which stays as long as it has a finalizer.
func (s *simulation) deleteWorkload(w *kueue.Workload) {
	if len(w.Finalizers) == 0 {
		s.drop(w)
		return
	}
	after := w.DeepCopy()
	after.DeletionTimestamp = new(s.timestamp())
	s.put(after)
}

// removeFinalizer removes the finalizer of a quota Workload, which disappears if it is deleted.
func (s *simulation) removeFinalizer(w *kueue.Workload) {
	now := s.objects.workloads[keyOf(w)]
	if now == nil {
		return
	}
	after := now.DeepCopy()
	after.Finalizers = nil
	if after.DeletionTimestamp.IsZero() {
		s.put(after)
		return
	}
	s.drop(after)
}

// drop removes a quota Workload permanently.
func (s *simulation) drop(w *kueue.Workload) {
	isDeleted := s.ownerOf(w).isDeleted
	switch {
	case jobsetstate.GrowthNumber(w) > 0 && !isDeleted:
		s.say("drop %s", s.subjectOf(w))
	case quotaworkload.HoldsQuota(w) && !isFinished(w):
		s.say("stop %s", s.subjectOf(w))
	}
	key := keyOf(w)
	delete(s.objects.workloads, key)
	if name := w.Labels[apis.JobSetLabel]; name != "" {
		delete(s.byJobSet[types.NamespacedName{Namespace: w.Namespace, Name: name}], key)
		s.touch(w.Namespace, name)
	}
	s.observe(admission.WorkloadGone{Key: key})
}

// touch makes the controllers of JobSets reconcile the JobSet of this name.
func (s *simulation) touch(namespace, name string) {
	s.jobSetQueue.add(types.NamespacedName{Namespace: namespace, Name: name})
}

// counts formats numbers of pods as a scenario does: 2, or ps:1,train:2.
func counts(podSets []kueue.PodSet) string {
	if len(podSets) == 1 {
		return strconv.Itoa(int(podSets[0].Count))
	}
	words := make([]string, len(podSets))
	for i := range podSets {
		words[i] = fmt.Sprintf("%s:%d", podSets[i].Name, podSets[i].Count)
	}
	return strings.Join(words, ",")
}
