package dashboard

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard/internal/ordered"
)

// A Model has the facts that answers need of all observed objects. It is not safe for concurrent use. It keeps no observed object.
type Model struct {
	clusterQueues map[string]*clusterQueue
	cohorts       map[string]*cohort
	localQueues   map[types.NamespacedName]*localQueue
	workloads     map[types.NamespacedName]*workload
	owners        map[ownerKey]*owner
	jobSets       *ordered.List[*jobSet]
	jobSetsByKey  map[types.NamespacedName]*jobSet
	// jobSetTotals are those of all JobSets: a page of their list visits no others.
	jobSetTotals totals
	// waiting has all pending quota Workloads, those first that wait longest, and changes what is known to change next, in the order of time.
	waiting *ordered.List[*workload]
	changes *ordered.List[change]
	// namespaces are those with JobSets or quota Workloads.
	namespaces map[string]*namespace
	// queueNamespaces counts the LocalQueues of each namespace.
	queueNamespaces map[string]int
	tree            *tree
	history         history
	version         uint64
	// isPartial is true if quota Workloads are missing.
	isPartial bool
}

// New returns an empty Model.
func New() *Model {
	return &Model{
		clusterQueues: map[string]*clusterQueue{}, cohorts: map[string]*cohort{}, localQueues: map[types.NamespacedName]*localQueue{},
		workloads: map[types.NamespacedName]*workload{}, owners: map[ownerKey]*owner{},
		jobSets: ordered.New(compareJobSets), jobSetsByKey: map[types.NamespacedName]*jobSet{}, jobSetTotals: newTotals(),
		waiting: ordered.New(compareWaiting), changes: ordered.New(change.compare), namespaces: map[string]*namespace{}, queueNamespaces: map[string]int{},
		history: history{series: map[string]*series{}},
	}
}

// Version returns another number after each change.
func (m *Model) Version() uint64 { return m.version }

// Touch records a change outside of the Model that the page shows.
func (m *Model) Touch() { m.version++ }

// LacksWorkloads records that not all quota Workloads are observed. Answers then have neither positions nor idle quota.
func (m *Model) LacksWorkloads() {
	m.isPartial, m.tree = true, nil
	m.version++
}

// Observe takes an object that was created or has changed: a ClusterQueue, a Cohort, a LocalQueue, a quota Workload or a JobSet. Others are ignored.
func (m *Model) Observe(object metav1.Object) {
	m.version++
	switch object := object.(type) {
	case *kueue.ClusterQueue:
		m.observeClusterQueue(object)
	case *kueue.Cohort:
		m.observeCohort(object)
	case *kueue.LocalQueue:
		m.observeLocalQueue(object)
	case *kueue.Workload:
		m.observeWorkload(object)
	case *jobsetapi.JobSet:
		m.observeJobSet(object)
	}
}

// Forget takes an object that was deleted. Only its kind and name count.
func (m *Model) Forget(object metav1.Object) {
	m.forget(object, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
}

func (m *Model) forget(kind metav1.Object, key types.NamespacedName) {
	m.version++
	switch kind.(type) {
	case *kueue.ClusterQueue:
		m.forgetClusterQueue(key.Name)
	case *kueue.Cohort:
		delete(m.cohorts, key.Name)
		m.tree = nil
	case *kueue.LocalQueue:
		m.forgetLocalQueue(key)
	case *kueue.Workload:
		if w := m.workloads[key]; w != nil {
			m.forgetWorkload(w)
		}
	case *jobsetapi.JobSet:
		m.forgetJobSet(key)
	}
}

// Retain forgets the objects of a kind in a namespace, or in all if it is empty, of which isCurrent returns false: they were deleted while they were
// not watched.
func (m *Model) Retain(kind metav1.Object, namespace string, isCurrent func(key types.NamespacedName) bool) {
	var gone []types.NamespacedName
	check := func(key types.NamespacedName) {
		if (namespace == "" || key.Namespace == namespace) && !isCurrent(key) {
			gone = append(gone, key)
		}
	}
	switch kind.(type) {
	case *kueue.ClusterQueue:
		for name := range m.clusterQueues {
			check(types.NamespacedName{Name: name})
		}
	case *kueue.Cohort:
		for name := range m.cohorts {
			check(types.NamespacedName{Name: name})
		}
	case *kueue.LocalQueue:
		for key := range m.localQueues {
			check(key)
		}
	case *kueue.Workload:
		for key := range m.workloads {
			check(key)
		}
	case *jobsetapi.JobSet:
		for key := range m.jobSetsByKey {
			check(key)
		}
	}
	for _, key := range gone {
		m.forget(kind, key)
	}
}

// A namespace has JobSets or quota Workloads.
type namespace struct {
	// objects is how many it has.
	objects int
	// held is what the quota Workloads hold, and idle the part of those whose pods are not all ready.
	held, idle map[corev1.ResourceName]quota.Amount
}

// count changes the number of objects of a namespace.
func (m *Model) count(name string, more int) {
	n := m.namespaces[name]
	if n == nil {
		n = &namespace{held: map[corev1.ResourceName]quota.Amount{}, idle: map[corev1.ResourceName]quota.Amount{}}
		m.namespaces[name] = n
	}
	if n.objects += more; n.objects == 0 {
		delete(m.namespaces, name)
	}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
