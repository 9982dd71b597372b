package shadow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

// DefaultLimit is how many JobSets, and how many jobs of other kinds, a Recorder keeps unless it is told otherwise.
const DefaultLimit = 2000

// A Recorder folds observations of objects into a Record. The times in the objects count where they have them, so that a Recorder may observe objects
// late; no end is later than its observation. It is not safe for concurrent use.
type Recorder struct {
	from    time.Time
	limit   int
	queues  *versions
	jobSets map[types.UID]*jobSet
	others  map[types.UID]*otherJob
	// jobs has the JobSets of child Jobs.
	jobs map[types.UID]*jobTimes
	// workloads has the reservations of the quota Workloads of JobSets.
	workloads map[types.UID]*reservations
	folded    Folded
	dropped   usage
	// assumed is the quota for JobSets that name no LocalQueue. They are not replayed if it is empty.
	assumed corev1.ResourceList
}

// Folded describes the jobs that a Recorder no longer has one by one.
type Folded struct {
	// JobSets is how many JobSets have finished by Until and count only in the sums of what was held.
	JobSets int       `json:"jobSets"`
	Until   time.Time `json:"until,omitzero"`
}

// NewRecorder returns a Recorder that begins at a time, in whole seconds as those of objects. Base has the objects that decide admission and are not observed; it may be nil. The Recorder
// keeps at most limit JobSets, and as many jobs of other kinds, if these have finished.
func NewRecorder(from time.Time, base *snapshot.Snapshot, limit int) *Recorder {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Recorder{
		from: from.Truncate(time.Second), limit: limit, queues: newVersions(base), jobSets: map[types.UID]*jobSet{}, others: map[types.UID]*otherJob{},
		jobs: map[types.UID]*jobTimes{}, workloads: map[types.UID]*reservations{}, dropped: usage{},
	}
}

// Observe takes an object as it was at a time.
func (r *Recorder) Observe(object snapshot.Object, at time.Time) {
	switch o := object.(type) {
	case *jobsetapi.JobSet:
		r.observeJobSet(o, at)
		if len(r.jobSets) > r.limit+r.limit/10 {
			r.fold(at)
		}
	case *batchv1.Job:
		r.observeJob(o, at)
		if len(r.jobSets) > r.limit+r.limit/10 {
			r.fold(at)
		}
	case *kueue.Workload:
		r.observeWorkload(o, at)
	default:
		r.queues.put(object, at)
	}
}

// Gone takes an object that has been deleted.
func (r *Recorder) Gone(object snapshot.Object, at time.Time) {
	switch o := object.(type) {
	case *jobsetapi.JobSet:
		if js := r.jobSets[o.UID]; js != nil {
			js.end(at)
		}
	case *batchv1.Job:
		if job := r.jobs[o.UID]; job != nil {
			job.end(at)
		}
		delete(r.jobs, o.UID)
	case *kueue.Workload:
		r.workloadGone(o.UID, at)
	default:
		r.queues.remove(object, at)
	}
}

// isNewer notes the version of an object, and reports whether it is newer than the last one. Versions that are no numbers always are.
func isNewer(last *int64, o metav1.Object) bool {
	version, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return true
	}
	isNewer := version >= *last
	*last = max(*last, version)
	return isNewer
}

func (r *Recorder) jobSet(uid types.UID) *jobSet {
	if r.jobSets[uid] == nil {
		r.jobSets[uid] = &jobSet{jobs: map[replay.Job]*jobTimes{}}
	}
	return r.jobSets[uid]
}

func (r *Recorder) observeJobSet(o *jobsetapi.JobSet, at time.Time) {
	js := r.jobSet(o.UID)
	if !isNewer(&js.version, o) {
		return
	}
	if js.object == nil {
		js.object = snapshot.Reduced(o)
		js.object.Status = jobset.JobSetStatus{}
	}
	for _, c := range o.Status.Conditions {
		if c.Status == metav1.ConditionTrue && (c.Type == string(jobset.JobSetCompleted) || c.Type == string(jobset.JobSetFailed)) {
			js.finished, js.hasFailed = earliest(at, c.LastTransitionTime.Time), c.Type == string(jobset.JobSetFailed)
		}
	}
	if o.DeletionTimestamp != nil {
		js.end(o.DeletionTimestamp.Time)
	}
}

// observeJob takes a child Job of a JobSet.
func (r *Recorder) observeJob(o *batchv1.Job, at time.Time) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "JobSet" || !strings.HasPrefix(owner.APIVersion, jobset.GroupVersion.Group+"/") {
		return
	}
	index, err := strconv.Atoi(o.Labels[jobset.JobIndexKey])
	if err != nil {
		return
	}
	attempt, _ := strconv.Atoi(o.Labels[constants.RestartsKey])
	js := r.jobSet(owner.UID)
	key := replay.Job{ReplicatedJob: o.Labels[jobset.ReplicatedJobNameKey], Index: index, Attempt: attempt}
	job := r.jobs[o.UID]
	if job == nil {
		job = &jobTimes{pods: podsOf(&o.Spec)}
		if before := js.jobs[key]; before != nil {
			job.runs = before.runs // recreated, for instance after an eviction
			job.end(o.CreationTimestamp.Time)
		}
		js.jobs[key], r.jobs[o.UID] = job, job
		js.jobUIDs = append(js.jobUIDs, o.UID)
	}
	if isNewer(&job.version, o) {
		job.observe(o, at)
	}
}

// observeWorkload takes a quota Workload of a JobSet or of another job.
func (r *Recorder) observeWorkload(o *kueue.Workload, at time.Time) {
	held := r.workloads[o.UID]
	if held == nil {
		held = r.newReservations(o)
		r.workloads[o.UID] = held
	}
	if !isNewer(&held.version, o) {
		return
	}
	held.observe(o, at)
	if other := r.others[o.UID]; other != nil {
		if c := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadFinished); c != nil && c.Status == metav1.ConditionTrue {
			other.finished = earliest(at, c.LastTransitionTime.Time)
		}
		if len(r.others) > r.limit+r.limit/10 {
			r.foldOthers(at)
		}
	}
}

// newReservations returns those of a quota Workload that is observed for the first time.
func (r *Recorder) newReservations(o *kueue.Workload) *reservations {
	if owner := jobSetOf(o); owner != "" {
		js := r.jobSet(owner)
		held := &reservations{}
		js.reservations, js.workloadUIDs = append(js.reservations, held), append(js.workloadUIDs, o.UID)
		return held
	}
	other := &otherJob{object: snapshot.Reduced(o)}
	other.object.Status = kueue.WorkloadStatus{}
	r.others[o.UID] = other
	return &other.reservations
}

// jobSetOf returns the UID of the JobSet that owns a quota Workload, or "".
func jobSetOf(o *kueue.Workload) types.UID {
	if o.Labels[apis.JobSetLabel] != "" {
		return types.UID(o.Labels[apis.JobUIDLabel])
	}
	for i := range o.OwnerReferences {
		if owner := &o.OwnerReferences[i]; owner.Kind == "JobSet" && strings.HasPrefix(owner.APIVersion, jobset.GroupVersion.Group+"/") {
			return owner.UID
		}
	}
	return ""
}

func (r *Recorder) workloadGone(uid types.UID, at time.Time) {
	if held := r.workloads[uid]; held != nil {
		held.end(at)
	}
	delete(r.workloads, uid)
	if other := r.others[uid]; other != nil && other.finished.IsZero() {
		other.deleted = at
	}
}

// fold drops the JobSets that finished first, until as many are left as the limit allows, and adds what they held to the sums.
func (r *Recorder) fold(now time.Time) {
	ended := slices.Collect(maps.Keys(r.jobSets))
	ended = slices.DeleteFunc(ended, func(uid types.UID) bool { return r.jobSets[uid].object != nil && r.jobSets[uid].endedAt().IsZero() })
	slices.SortFunc(ended, func(a, b types.UID) int { return r.jobSets[a].endedAt().Compare(r.jobSets[b].endedAt()) })
	for _, uid := range ended[:min(len(ended), max(0, len(r.jobSets)-r.limit))] {
		js := r.jobSets[uid]
		js.measure(r.from, now, r.dropped.add)
		if js.object != nil {
			r.folded.JobSets++
		}
		if end := js.endedAt(); end.After(r.folded.Until) {
			r.folded.Until = end
		}
		delete(r.jobSets, uid)
		for _, job := range js.jobUIDs {
			delete(r.jobs, job)
		}
		for _, workload := range js.workloadUIDs {
			delete(r.workloads, workload)
		}
	}
}

// foldOthers does the same for jobs of other kinds.
func (r *Recorder) foldOthers(now time.Time) {
	ended := slices.Collect(maps.Keys(r.others))
	ended = slices.DeleteFunc(ended, func(uid types.UID) bool { return r.others[uid].endedAt().IsZero() })
	slices.SortFunc(ended, func(a, b types.UID) int { return r.others[a].endedAt().Compare(r.others[b].endedAt()) })
	for _, uid := range ended[:min(len(ended), max(0, len(r.others)-r.limit))] {
		r.others[uid].measure(r.from, now, r.dropped.add)
		if end := r.others[uid].endedAt(); end.After(r.folded.Until) {
			r.folded.Until = end
		}
		delete(r.others, uid)
		delete(r.workloads, uid)
	}
}

// RecordOf returns what the objects of a snapshot still show of what happened. What was deleted before is missing.
func RecordOf(s *snapshot.Snapshot) (*Recorder, error) {
	from := s.TakenAt
	for _, js := range s.JobSets {
		if js.CreationTimestamp.IsZero() {
			return nil, fmt.Errorf("JobSet %s/%s has no metadata.creationTimestamp: manifests do not show what happened; take a snapshot of a cluster with tranche snapshot", js.Namespace, js.Name)
		}
		from = earliest(from, js.CreationTimestamp.Time)
	}
	r := NewRecorder(from, s, max(DefaultLimit, len(s.JobSets), len(s.Workloads)))
	for _, o := range s.JobSets {
		r.Observe(o, s.TakenAt)
	}
	for _, o := range s.Jobs {
		r.Observe(o, s.TakenAt)
	}
	for _, o := range s.Workloads {
		r.Observe(o, s.TakenAt)
	}
	return r, nil
}

// Progress describes what was observed until now in one line.
func (r *Recorder) Progress(now time.Time) string {
	measured := usage{}
	for _, js := range r.jobSets {
		js.measure(r.from, now, measured.add)
	}
	c := r.counts()
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %d JobSets, %d pending, %d running, %d finished", now.Sub(r.from).Truncate(time.Second), c.Total, c.Pending, c.Running, c.Finished)
	for _, name := range namesOf(sums{measured: measured}) {
		if isAccelerator(name) {
			fmt.Fprintf(&text, "; %s: %.0f unit seconds held, %.0f idle", name, measured.held(name), measured.idle(name))
		}
	}
	return text.String()
}
