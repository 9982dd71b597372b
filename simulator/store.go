package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// store is the API server: all objects, and no other state. A crash of the engine does not change it.
type store struct {
	// sequence numbers objects and their versions.
	sequence int

	namespaces    map[string]map[string]string
	flavors       map[string]*kueue.ResourceFlavor
	checks        map[string]*kueue.AdmissionCheck
	classes       map[string]*kueue.WorkloadPriorityClass
	cohorts       map[string]*kueue.Cohort
	clusterQueues map[string]*kueue.ClusterQueue
	localQueues   map[types.NamespacedName]*kueue.LocalQueue
	// These objects determine the requests of pods, and whether the API server creates them.
	limitRanges    map[types.NamespacedName]*corev1.LimitRange
	runtimeClasses map[string]*nodev1.RuntimeClass
	deviceClasses  map[string]*resourcev1.DeviceClass
	plans          map[types.UID]admission.PlanObserved
	workloads      map[admission.StageKey]*kueue.Workload
	jobSets        map[types.NamespacedName]*jobsetapi.JobSet
	// jobs has the Jobs of JobSets by the UID of the JobSet, in the order of their creation, and pods their pods by the UID of the Job.
	jobs map[types.UID][]*batchv1.Job
	pods map[types.UID]*pods
}

func newStore() *store {
	return &store{
		namespaces:     map[string]map[string]string{},
		flavors:        map[string]*kueue.ResourceFlavor{},
		checks:         map[string]*kueue.AdmissionCheck{},
		classes:        map[string]*kueue.WorkloadPriorityClass{},
		cohorts:        map[string]*kueue.Cohort{},
		clusterQueues:  map[string]*kueue.ClusterQueue{},
		limitRanges:    map[types.NamespacedName]*corev1.LimitRange{},
		runtimeClasses: map[string]*nodev1.RuntimeClass{},
		deviceClasses:  map[string]*resourcev1.DeviceClass{},
		localQueues:    map[types.NamespacedName]*kueue.LocalQueue{},
		plans:          map[types.UID]admission.PlanObserved{},
		workloads:      map[admission.StageKey]*kueue.Workload{},
		jobSets:        map[types.NamespacedName]*jobsetapi.JobSet{},
		jobs:           map[types.UID][]*batchv1.Job{},
		pods:           map[types.UID]*pods{},
	}
}

// newUID numbers objects in the order of their creation, so that ties are broken in the order of the scenario.
func (st *store) newUID() types.UID {
	st.sequence++
	return types.UID(fmt.Sprintf("%08d", st.sequence))
}

// stamp sets the metadata of a written object as the API server does.
func (st *store) stamp(object metav1.Object, now time.Time) {
	if object.GetUID() == "" {
		object.SetUID(st.newUID())
		object.SetCreationTimestamp(metav1.NewTime(now.Truncate(time.Second)))
		object.SetGeneration(1)
	}
	st.sequence++
	object.SetResourceVersion(strconv.Itoa(st.sequence))
}

// events returns the observations of a client that lists all objects for the first time.
func (st *store) events() []admission.Event {
	var events []admission.Event
	for _, name := range sorted(st.namespaces) {
		events = append(events, admission.NamespaceObserved{Name: name, Labels: st.namespaces[name]})
	}
	for _, name := range sorted(st.flavors) {
		events = append(events, admission.FlavorObserved{Flavor: st.flavors[name].DeepCopy()})
	}
	for _, name := range sorted(st.checks) {
		events = append(events, admission.CheckObserved{AdmissionCheck: st.checks[name].DeepCopy()})
	}
	for _, name := range sorted(st.cohorts) {
		events = append(events, admission.CohortObserved{Cohort: st.cohorts[name].DeepCopy()})
	}
	for _, name := range sorted(st.clusterQueues) {
		events = append(events, admission.ClusterQueueObserved{ClusterQueue: st.clusterQueues[name].DeepCopy()})
	}
	for _, key := range slices.SortedFunc(maps.Keys(st.localQueues), compareKeys) {
		events = append(events, admission.LocalQueueObserved{LocalQueue: st.localQueues[key].DeepCopy()})
	}
	for _, key := range slices.SortedFunc(maps.Keys(st.limitRanges), compareKeys) {
		events = append(events, limitRangeObserved(st.limitRanges[key]))
	}
	for _, name := range sorted(st.runtimeClasses) {
		events = append(events, runtimeClassObserved(st.runtimeClasses[name]))
	}
	for _, name := range sorted(st.deviceClasses) {
		events = append(events, deviceClassObserved(st.deviceClasses[name]))
	}
	for _, uid := range sorted(st.plans) {
		events = append(events, st.plans[uid])
	}
	for _, key := range st.workloadKeys() {
		events = append(events, admission.WorkloadObserved{Workload: st.workloads[key].DeepCopy()})
	}
	return events
}

// jobsOf returns the Jobs of a JobSet in the order of their creation.
func (st *store) jobsOf(jobSet types.UID) []*batchv1.Job { return slices.Clone(st.jobs[jobSet]) }

// job returns a Job by its UID, or nil.
func (st *store) job(uid types.UID) *batchv1.Job {
	for _, jobs := range st.jobs {
		if i := indexOf(jobs, uid); i >= 0 {
			return jobs[i]
		}
	}
	return nil
}

func indexOf(jobs []*batchv1.Job, uid types.UID) int {
	return slices.IndexFunc(jobs, func(job *batchv1.Job) bool { return job.UID == uid })
}

// putJob replaces a Job, or adds a new one.
func (st *store) putJob(job *batchv1.Job) {
	owner := job.OwnerReferences[0].UID
	if i := indexOf(st.jobs[owner], job.UID); i >= 0 {
		st.jobs[owner][i] = job
		return
	}
	st.jobs[owner] = append(st.jobs[owner], job)
}

// dropJob removes a Job and its pods.
func (st *store) dropJob(job *batchv1.Job) {
	owner := job.OwnerReferences[0].UID
	st.jobs[owner] = slices.DeleteFunc(st.jobs[owner], func(other *batchv1.Job) bool { return other.UID == job.UID })
	if len(st.jobs[owner]) == 0 {
		delete(st.jobs, owner)
	}
	delete(st.pods, job.UID)
}

func (st *store) workloadKeys() []admission.StageKey {
	return slices.SortedFunc(maps.Keys(st.workloads), compareKeys)
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
