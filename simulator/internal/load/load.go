// Package load fills a simulated cluster with the objects of a snapshot, so that a manager can start on them as after a crash.
package load

import (
	"cmp"
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
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/timeline"
	"github.com/tranche-dev/tranche/snapshot"
)

// LeftOut is an object of a snapshot that is not simulated.
type LeftOut struct {
	Kind string
	Key  types.NamespacedName
	// Why says what the manager would object to, or what the snapshot lacks.
	Why string
}

// A loader fills one cluster.
type loader struct {
	*cluster.Cluster
	snapshot *snapshot.Snapshot
	config   *configapi.Configuration
	// stopAfter is how long pods take to terminate.
	stopAfter time.Duration
	leftOut   []LeftOut
	plans     map[sharing][]planned
	// unselected says of namespaces why the manager manages nothing there, or has "".
	unselected map[string]string
	// workloads has the quota Workloads of each JobSet and queued Job, and limits the LimitRanges of each namespace.
	workloads map[types.UID][]*kueue.Workload
	limits    map[string][]*corev1.LimitRange
	// devices has the resources that are charged for devices, and claimTemplates the ResourceClaimTemplates of each namespace by name.
	devices        device.Mapping
	claimTemplates map[string]map[string]device.Template
}

// Cluster returns a cluster with copies of the objects of a snapshot, in which virtual time begins when the snapshot was taken. Quota Workloads and
// JobSets are not copied: there may be very many, most stay as they are, and the cluster replaces those that change. Pods take stopAfter to terminate.
// No pods do anything yet, and no engine has observed anything. The configuration has its defaults.
func Cluster(s *snapshot.Snapshot, config *configapi.Configuration, stopAfter time.Duration) (*cluster.Cluster, []LeftOut) {
	l := newLoader(cluster.New(&timeline.Timeline{Begin: s.TakenAt}), s, config, stopAfter)
	l.reserve()
	l.addQueues()
	l.addPodRules()
	l.indexWorkloads()
	for _, js := range s.JobSets {
		l.addJobSet(js)
	}
	l.addJobs()
	for _, w := range s.Workloads {
		l.addWorkload(w)
	}
	l.addGangPlans()
	l.continueSequence()
	return l.Cluster, l.leftOut
}

// reserve makes the maps large enough for what a snapshot has most of: to let them grow takes longer than to fill them.
func (l *loader) reserve() {
	workloads, jobSets := len(l.snapshot.Workloads), len(l.snapshot.JobSets)
	l.Workloads = make(map[admission.StageKey]*kueue.Workload, workloads)
	l.JobSets = make(map[types.NamespacedName]*jobsetapi.JobSet, jobSets)
	l.UserJobs = make(map[types.NamespacedName]*cluster.UserJob, jobSets)
	l.Plans = make(map[types.UID]admission.PlanObserved, jobSets)
	l.WorkloadsByJobSet = make(map[types.NamespacedName][]admission.StageKey, jobSets)
	l.workloads = make(map[types.UID][]*kueue.Workload, jobSets)
}

func newLoader(cl *cluster.Cluster, s *snapshot.Snapshot, config *configapi.Configuration, stopAfter time.Duration) *loader {
	return &loader{
		Cluster: cl, snapshot: s, config: config, stopAfter: stopAfter, plans: map[sharing][]planned{}, unselected: map[string]string{},
		limits:  map[string][]*corev1.LimitRange{},
		devices: admission.DevicesOf(&config.Resources), claimTemplates: map[string]map[string]device.Template{},
	}
}

func (l *loader) leaveOut(kind string, object metav1.Object, why string) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	l.leftOut = append(l.leftOut, LeftOut{Kind: kind, Key: key, Why: why})
}

// addQueues adds the objects that make up queues.
func (l *loader) addQueues() {
	s := l.snapshot
	for _, o := range s.Namespaces {
		l.StoreNamespace(o.DeepCopy())
	}
	add(l.Flavors, s.ResourceFlavors, (*kueue.ResourceFlavor).DeepCopy, nameOf)
	add(l.AdmissionChecks, s.AdmissionChecks, (*kueue.AdmissionCheck).DeepCopy, nameOf)
	add(l.PriorityClasses, s.PriorityClasses, (*kueue.WorkloadPriorityClass).DeepCopy, nameOf)
	add(l.Cohorts, s.Cohorts, (*kueue.Cohort).DeepCopy, nameOf)
	add(l.ClusterQueues, s.ClusterQueues, (*kueue.ClusterQueue).DeepCopy, nameOf)
	add(l.LocalQueues, s.LocalQueues, (*kueue.LocalQueue).DeepCopy, keyOf)
	for _, q := range l.ClusterQueues {
		q.Spec.QueueingStrategy = cmp.Or(q.Spec.QueueingStrategy, kueue.BestEffortFIFO)
		stopForTranche(q)
	}
	for key := range l.LocalQueues {
		if l.Namespaces[key.Namespace] == nil {
			l.StoreNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
	}
}

// stopForTranche sets the stop policy of a ClusterQueue that was taken over from Kueue, and is held for that, to the one for Tranche.
func stopForTranche(q *kueue.ClusterQueue) {
	if q.Annotations[apis.EngineAnnotation] != apis.EngineTranche || ptr.Deref(q.Spec.StopPolicy, kueue.None) != kueue.Hold {
		return
	}
	if policy := q.Annotations[apis.StopPolicyAnnotation]; policy == "" || policy == string(kueue.None) {
		q.Spec.StopPolicy = nil
	}
}

// addPodRules adds the objects that determine the requests of pods.
func (l *loader) addPodRules() {
	s := l.snapshot
	add(l.LimitRanges, s.LimitRanges, (*corev1.LimitRange).DeepCopy, keyOf)
	add(l.RuntimeClasses, s.RuntimeClasses, (*nodev1.RuntimeClass).DeepCopy, nameOf)
	add(l.DeviceClasses, s.DeviceClasses, (*resourcev1.DeviceClass).DeepCopy, nameOf)
	l.indexPodRules()
}

// indexPodRules finds the LimitRanges and ResourceClaimTemplates of each namespace.
func (l *loader) indexPodRules() {
	s := l.snapshot
	for _, o := range s.LimitRanges {
		l.limits[o.Namespace] = append(l.limits[o.Namespace], o)
	}
	for _, o := range s.ResourceClaimTemplates {
		if l.claimTemplates[o.Namespace] == nil {
			l.claimTemplates[o.Namespace] = map[string]device.Template{}
		}
		l.claimTemplates[o.Namespace][o.Name] = device.Template{UID: o.UID, Spec: o.Spec.Spec}
	}
}

// add stores copies of objects by their keys.
func add[K comparable, T metav1.Object](to map[K]T, objects []T, copied func(T) T, key func(metav1.Object) K) {
	for _, o := range objects {
		to[key(o)] = copied(o)
	}
}

func nameOf(o metav1.Object) string { return o.GetName() }

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// continueSequence lets new objects and versions have higher numbers than those of the snapshot, as far as these are numbers.
func (l *loader) continueSequence() {
	for _, objects := range [][]metav1.Object{
		objectsOf(maps.Values(l.Flavors)), objectsOf(maps.Values(l.AdmissionChecks)), objectsOf(maps.Values(l.Cohorts)),
		objectsOf(maps.Values(l.ClusterQueues)), objectsOf(maps.Values(l.LocalQueues)), objectsOf(maps.Values(l.LimitRanges)),
		objectsOf(maps.Values(l.RuntimeClasses)), objectsOf(maps.Values(l.DeviceClasses)), objectsOf(maps.Values(l.JobSets)),
		objectsOf(maps.Values(l.Jobs)), objectsOf(maps.Values(l.Workloads)),
	} {
		for _, o := range objects {
			for _, text := range []string{o.GetResourceVersion(), string(o.GetUID())} {
				if text == "" || text[0] < '0' || text[0] > '9' {
					continue // most UIDs, whose errors take time
				}
				if number, err := strconv.Atoi(text); err == nil {
					l.Sequence = max(l.Sequence, number)
				}
			}
		}
	}
}

func objectsOf[T metav1.Object](values func(func(T) bool)) []metav1.Object {
	var all []metav1.Object
	for o := range values {
		all = append(all, o)
	}
	return all
}

// jobSetOf returns the UID of the JobSet that controls a Job, or "".
func jobSetOf(job *batchv1.Job) types.UID {
	owner := metav1.GetControllerOfNoCopy(job)
	if owner == nil || owner.Kind != "JobSet" {
		return ""
	}
	return owner.UID
}

// addJobs adds the Jobs of the JobSets that are simulated, and those that deleted JobSets have left, in the order of their creation.
func (l *loader) addJobs() {
	jobs := slices.Clone(l.snapshot.Jobs)
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	pods := l.terminatingPods()
	for _, original := range jobs {
		if queuedjob.IsQueued(original) {
			l.addQueuedJob(original, pods[original.UID])
			continue
		}
		jobSet := jobSetOf(original)
		key := types.NamespacedName{Namespace: original.Namespace, Name: original.Labels[jobset.JobSetNameKey]}
		if jobSet == "" || l.UserJobs[key] == nil && len(l.workloads[jobSet]) == 0 {
			continue
		}
		l.needOwner(key)
		job := original.DeepCopy()
		// The owners of a Job are looked up by the first reference.
		slices.SortStableFunc(job.OwnerReferences, func(a, b metav1.OwnerReference) int { return cmp.Compare(rank(a, jobSet), rank(b, jobSet)) })
		if js := l.JobSets[key]; (js == nil || js.UID != jobSet) && job.DeletionTimestamp.IsZero() {
			job.DeletionTimestamp = new(l.Timestamp()) // the garbage collector is about to delete it
			job.Finalizers = append(job.Finalizers, metav1.FinalizerDeleteDependents)
		}
		l.AddJob(job)
		l.Pods[job.UID] = l.podsOf(job, pods[job.UID])
		l.JobQueue[job.UID] = true
		l.JobSetQueue.Add(key)
	}
}

func rank(owner metav1.OwnerReference, jobSet types.UID) int {
	if owner.UID == jobSet {
		return 0
	}
	return 1
}

// A termination is how many pods of a Job terminate, and when the last of them is killed.
type termination struct {
	pods int32
	by   time.Time
}

// terminatingPods counts the pods of the snapshot that terminate, by the UIDs of their Jobs.
func (l *loader) terminatingPods() map[types.UID]termination {
	all := map[types.UID]termination{}
	for _, pod := range l.snapshot.Pods {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || pod.DeletionTimestamp.IsZero() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		t := all[owner.UID]
		t.pods++
		if pod.DeletionTimestamp.After(t.by) {
			t.by = pod.DeletionTimestamp.Time
		}
		all[owner.UID] = t
	}
	return all
}

// podsOf returns the pods of a Job that its status counts.
func (l *loader) podsOf(job *batchv1.Job, terminating termination) *cluster.PodSet {
	status := &job.Status
	p := &cluster.PodSet{EndsAt: l.stopAfter}
	// The status of a Job that has ended no longer counts them.
	if status.Terminating != nil && !childjob.IsFinished(job, batchv1.JobComplete) && !cluster.IsFailed(job) {
		p.Terminating = *status.Terminating
	}
	p.Terminating = max(p.Terminating, terminating.pods)
	if !terminating.by.IsZero() {
		p.EndsAt = max(0, terminating.by.Sub(l.Beginning()))
	}
	ready := int32(0)
	if status.Ready != nil {
		ready = min(*status.Ready, status.Active)
	}
	for _, b := range []cluster.Batch{
		{Count: status.Succeeded, IsReady: true, HasSucceeded: true}, {Count: ready, IsReady: true}, {Count: status.Active - ready},
	} {
		if b.Count > 0 {
			b.Started = l.since(status.StartTime)
			p.Batches = append(p.Batches, &b)
		}
	}
	return p
}

// since returns a time before the snapshot was taken in virtual time. A time that is missing is that of the snapshot.
func (l *loader) since(at *metav1.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return min(0, at.Sub(l.Beginning()))
}

// isDeleted reports whether a JobSet is being deleted.
func isDeleted(js *jobsetapi.JobSet) bool { return !js.DeletionTimestamp.IsZero() }
