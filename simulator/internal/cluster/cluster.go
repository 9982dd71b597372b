// Package cluster holds the state of a simulated cluster: API objects, pods, and the work queues of the controllers that watch them.
package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/timeline"
)

// A Cluster has all objects of the API server, the pods, and the jobs that users have submitted. A crash of the manager changes nothing of it.
type Cluster struct {
	*timeline.Timeline
	// Observe makes the engine of the manager observe a change.
	Observe func(admission.Event)
	// Sequence numbers objects and their versions.
	Sequence int

	Namespaces      map[string]*corev1.Namespace
	Flavors         map[string]*kueue.ResourceFlavor
	AdmissionChecks map[string]*kueue.AdmissionCheck
	PriorityClasses map[string]*kueue.WorkloadPriorityClass
	Cohorts         map[string]*kueue.Cohort
	ClusterQueues   map[string]*kueue.ClusterQueue
	LocalQueues     map[types.NamespacedName]*kueue.LocalQueue
	// These objects determine the requests of pods, and whether the API server creates them.
	LimitRanges    map[types.NamespacedName]*corev1.LimitRange
	RuntimeClasses map[string]*nodev1.RuntimeClass
	DeviceClasses  map[string]*resourcev1.DeviceClass
	// Plans has the plans that the manager derives from JobSets, by the UID of the JobSet.
	Plans map[types.UID]admission.PlanObserved
	// Workloads has the quota Workloads. None of them is changed: a copy replaces it.
	Workloads map[admission.StageKey]*kueue.Workload
	// WorkloadsByJobSet has the quota Workloads of the JobSets of each name, and WorkloadsByJob those of the queued Jobs.
	WorkloadsByJobSet, WorkloadsByJob map[types.NamespacedName][]admission.StageKey
	// JobSets has the JobSets, which are not changed either.
	JobSets map[types.NamespacedName]*jobsetapi.JobSet
	// Jobs has the Jobs of JobSets and the queued Jobs by their UIDs. JobsByJobSet has these UIDs by the UID of the JobSet, in the order of creation, and JobsByName by name.
	Jobs         map[types.UID]*batchv1.Job
	JobsByJobSet map[types.UID][]types.UID
	JobsByName   map[JobName]types.UID
	// Pods has the pods of a Job, by its UID.
	Pods map[types.UID]*PodSet
	// UserJobs has the submitted JobSets, QueuedJobs the queued Jobs, and PlainJobs the jobs of other kinds, whose keys are those of their quota Workloads.
	UserJobs, QueuedJobs, PlainJobs map[types.NamespacedName]*UserJob
	// Course determines how long pods take.
	Course Course
	// Previous has, unless it is nil, the previous versions of the objects of a JobSet that have changed since the manager last read all of them.
	Previous map[types.NamespacedName]map[ObjectName]Version

	// Each controller has a queue of the objects that it has to reconcile: WorkloadQueue has quota Workloads, JobSetQueue has JobSets, queued Jobs and
	// plain jobs, and JobQueue the UIDs of Jobs.
	WorkloadQueue, JobSetQueue WorkQueue
	JobQueue                   map[types.UID]bool
}

// New returns an empty cluster.
func New(t *timeline.Timeline) *Cluster {
	return &Cluster{
		Timeline:          t,
		Namespaces:        map[string]*corev1.Namespace{},
		Flavors:           map[string]*kueue.ResourceFlavor{},
		AdmissionChecks:   map[string]*kueue.AdmissionCheck{},
		PriorityClasses:   map[string]*kueue.WorkloadPriorityClass{},
		Cohorts:           map[string]*kueue.Cohort{},
		ClusterQueues:     map[string]*kueue.ClusterQueue{},
		LocalQueues:       map[types.NamespacedName]*kueue.LocalQueue{},
		LimitRanges:       map[types.NamespacedName]*corev1.LimitRange{},
		RuntimeClasses:    map[string]*nodev1.RuntimeClass{},
		DeviceClasses:     map[string]*resourcev1.DeviceClass{},
		Plans:             map[types.UID]admission.PlanObserved{},
		Workloads:         map[admission.StageKey]*kueue.Workload{},
		WorkloadsByJobSet: map[types.NamespacedName][]admission.StageKey{},
		WorkloadsByJob:    map[types.NamespacedName][]admission.StageKey{},
		JobSets:           map[types.NamespacedName]*jobsetapi.JobSet{},
		Jobs:              map[types.UID]*batchv1.Job{},
		JobsByJobSet:      map[types.UID][]types.UID{},
		JobsByName:        map[JobName]types.UID{},
		Pods:              map[types.UID]*PodSet{},
		UserJobs:          map[types.NamespacedName]*UserJob{},
		QueuedJobs:        map[types.NamespacedName]*UserJob{},
		PlainJobs:         map[types.NamespacedName]*UserJob{},
		Course:            AsSubmitted{},
		WorkloadQueue:     newWorkQueue(),
		JobSetQueue:       newWorkQueue(),
		JobQueue:          map[types.UID]bool{},
	}
}

// newUID numbers objects in the order of their creation, so that ties are broken in the order of the scenario.
func (cl *Cluster) newUID() types.UID {
	cl.Sequence++
	return types.UID(fmt.Sprintf("%08d", cl.Sequence))
}

// Stamp sets the metadata of a written object as the API server does.
func (cl *Cluster) Stamp(object metav1.Object) {
	if object.GetUID() == "" {
		object.SetUID(cl.newUID())
		object.SetCreationTimestamp(cl.Timestamp())
		object.SetGeneration(1)
	}
	cl.Sequence++
	object.SetResourceVersion(strconv.Itoa(cl.Sequence))
}

// InitialEvents returns the observations of a client that lists all objects for the first time.
func (cl *Cluster) InitialEvents() []admission.Event {
	events := slices.Concat(
		observations(cl.Namespaces, strings.Compare, namespaceObserved),
		observations(cl.Flavors, strings.Compare, flavorObserved),
		observations(cl.AdmissionChecks, strings.Compare, checkObserved),
		observations(cl.Cohorts, strings.Compare, cohortObserved),
		observations(cl.ClusterQueues, strings.Compare, clusterQueueObserved),
		observations(cl.LocalQueues, CompareKeys, localQueueObserved),
		observations(cl.LimitRanges, CompareKeys, limitRangeObserved),
		observations(cl.RuntimeClasses, strings.Compare, runtimeClassObserved),
		observations(cl.DeviceClasses, strings.Compare, deviceClassObserved),
	)
	for _, uid := range slices.Sorted(maps.Keys(cl.Plans)) {
		events = append(events, cl.Plans[uid])
	}
	for _, key := range cl.WorkloadKeys() {
		events = append(events, admission.WorkloadObserved{Workload: cl.Workloads[key]})
	}
	return events
}

// observations returns an observation of each object of a kind, in the order of their keys.
func observations[K comparable, T any](objects map[K]T, compare func(a, b K) int, observed func(T) admission.Event) []admission.Event {
	var events []admission.Event
	for _, key := range slices.SortedFunc(maps.Keys(objects), compare) {
		events = append(events, observed(objects[key]))
	}
	return events
}

// CompareKeys orders objects by namespace and name.
func CompareKeys(a, b types.NamespacedName) int {
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	return strings.Compare(a.Name, b.Name)
}
