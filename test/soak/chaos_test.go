package soak_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// A kind is one of the things that may happen.
type kind = string

const (
	killManager    kind = "kill-manager"
	killJobSet     kind = "kill-jobset"
	killAPIServer  kind = "kill-apiserver"
	deleteJob      kind = "delete-job"
	deletePod      kind = "delete-pod"
	cutQuota       kind = "cut-quota"
	restoreQuota   kind = "restore-quota"
	suspendJobSet  kind = "suspend-jobset"
	resumeJobSet   kind = "resume-jobset"
	resizeJobSet   kind = "resize-jobset"
	deleteJobSet   kind = "delete-jobset"
	deletePods     kind = "delete-pods"
	deleteWorkload kind = "delete-workload"

	suspendQueuedJob kind = "suspend-queued-job"
	resumeQueuedJob  kind = "resume-queued-job"
	resizeQueuedJob  kind = "resize-queued-job"
	deleteQueuedJob  kind = "delete-queued-job"
)

func (s *soak) log(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%s "+format, append([]any{time.Now().UTC().Format("15:04:05.000")}, args...)...)
}

// strike does one thing. What cannot be done at the moment is left out: the JobSet controller, whose webhooks have a say in most
// writes, may be down.
func (s *soak) strike(k kind) {
	s.t.Helper()
	var what string
	var err error
	switch k {
	case killManager, killJobSet, killAPIServer:
		what, err = s.kill(k)
	case cutQuota, restoreQuota:
		what, err = s.changeQuota(k)
	case suspendJobSet, resumeJobSet:
		what, err = s.setSuspend(k)
	case resizeJobSet:
		what, err = s.resizeJobSet()
	case deleteJobSet:
		what, err = s.deleteJobSet()
	case deletePods:
		what, err = s.deletePods()
	case suspendQueuedJob, resumeQueuedJob:
		what, err = s.setJobSuspend(k)
	case resizeQueuedJob:
		what, err = s.resizeJob()
	case deleteQueuedJob:
		what, err = s.deleteQueuedJob()
	default:
		what, err = s.deleteOne(k)
	}
	if err != nil {
		s.log("%s %s is left out: %v", k, what, err)
	} else if what != "" {
		s.strikes[k]++
		s.log("%s %s", k, what)
	}
}

// kill ends a process at once. The manager and the JobSet controller come back with a later step, the API server at once.
func (s *soak) kill(k kind) (string, error) {
	plane := s.env.Plane
	switch {
	case k == killManager && s.manager != nil:
		m := s.manager
		s.manager = nil
		return m.Log, m.Kill()
	case k == killJobSet && plane.PID(controlplane.JobSet) != 0:
		return "-", plane.KillComponent(controlplane.JobSet)
	case k == killAPIServer:
		if err := plane.KillComponent(controlplane.APIServer); err != nil {
			return "", err
		}
		return "-", plane.StartComponent(s.t.Context(), controlplane.APIServer)
	}
	return "", nil
}

// revive starts what is down, sooner or later, as a kubelet would.
func (s *soak) revive() {
	s.t.Helper()
	if s.env.Plane.PID(controlplane.JobSet) == 0 && s.random.IntN(3) == 0 {
		s.startJobSet()
	}
	s.heedManager()
	if s.manager == nil && s.random.IntN(2) == 0 {
		s.startManager()
	}
}

func (s *soak) startJobSet() {
	s.t.Helper()
	if err := s.env.Plane.StartComponent(s.t.Context(), controlplane.JobSet); err != nil {
		s.t.Fatal(err)
	}
}

func (s *soak) startManager() {
	s.t.Helper()
	var err error
	if s.manager, err = s.env.LaunchManager(managerOptions()); err != nil {
		s.t.Fatal(err)
	}
}

// heedManager notices when the manager has ended by itself. It may, while there is no API server, but not by a panic.
func (s *soak) heedManager() {
	s.t.Helper()
	if s.manager == nil {
		return
	}
	select {
	case <-s.manager.Done():
	default:
		return
	}
	content, err := os.ReadFile(s.manager.Log)
	if err != nil {
		s.t.Fatal(err)
	}
	if at := bytes.Index(content, []byte("panic: ")); at >= 0 {
		s.t.Errorf("the manager has panicked:\n%s", content[at:])
	}
	s.log("the manager has ended by itself: %s", content[max(0, len(content)-300):])
	s.manager = nil
}

// pick chooses one of a list, or nil.
func pick[T any](s *soak, items []T) *T {
	if len(items) == 0 {
		return nil
	}
	return &items[s.random.IntN(len(items))]
}

func (s *soak) namespace() client.InNamespace {
	return client.InNamespace(tenantName(s.random.IntN(tenants)))
}

// deleteOne deletes an object behind the back of its controllers.
func (s *soak) deleteOne(k kind) (string, error) {
	ctx := s.t.Context()
	var object client.Object
	switch k {
	case deleteJob:
		var list batchv1.JobList
		// Those of gangs of pods are deleted together: no controller recreates one.
		if err := s.admin.List(ctx, &list, s.namespace(), client.HasLabels{jobset.JobSetNameKey}); err != nil {
			return "", err
		}
		job := pick(s, list.Items)
		if job == nil {
			return "", nil
		}
		// The scheduler does not place the recreated pods of a gang of which others have succeeded. Its user has to restart the JobSet.
		js := &jobsetapi.JobSet{}
		if err := s.admin.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: job.Labels[jobset.JobSetNameKey]}, js); err != nil || hasGangs(js) {
			return "", client.IgnoreNotFound(err)
		}
		object = job
	case deletePod:
		var list corev1.PodList
		if err := s.admin.List(ctx, &list, s.namespace()); err != nil {
			return "", err
		}
		isOver := func(p corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		}
		if pod := pick(s, slices.DeleteFunc(list.Items, isOver)); pod != nil {
			object = pod
		}
	case deleteWorkload:
		var list kueue.WorkloadList
		if err := s.admin.List(ctx, &list, s.namespace()); err != nil {
			return "", err
		}
		isOver := func(w kueue.Workload) bool {
			return apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
		}
		if workload := pick(s, slices.DeleteFunc(list.Items, isOver)); workload != nil {
			object = workload
		}
	}
	if object == nil {
		return "", nil
	}
	err := s.admin.Delete(ctx, object, client.PropagationPolicy("Background"))
	return client.ObjectKeyFromObject(object).String(), client.IgnoreNotFound(err)
}

// changeQuota sets the quota of one flavor in one ClusterQueue: to less than before, or to what it was at the beginning.
func (s *soak) changeQuota(k kind) (string, error) {
	var q kueue.ClusterQueue
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Name: tenantName(s.random.IntN(tenants))}, &q); err != nil {
		return "", err
	}
	before := q.DeepCopy()
	group := s.random.IntN(len(q.Spec.ResourceGroups))
	flavors := q.Spec.ResourceGroups[group].Flavors
	i := s.random.IntN(len(flavors))
	quota, full := &flavors[i].Resources[0], resourceGroups()[group].Flavors[i].Resources[0].NominalQuota
	if k == restoreQuota {
		quota.NominalQuota = full
	} else {
		quota.NominalQuota = *resource.NewQuantity(s.random.Int64N(full.Value()), resource.DecimalSI)
	}
	if quota.NominalQuota.Equal(before.Spec.ResourceGroups[group].Flavors[i].Resources[0].NominalQuota) {
		return "", nil
	}
	what := q.Name + " " + string(flavors[i].Name) + " " + quota.NominalQuota.String()
	return what, s.admin.Patch(s.t.Context(), &q, client.MergeFrom(before))
}

// pickJobSet chooses a JobSet that is not over and to which something can be done, or nil.
func (s *soak) pickJobSet(can func(*jobsetapi.JobSet) bool) (*jobsetapi.JobSet, error) {
	var list jobsetapi.JobSetList
	if err := s.admin.List(s.t.Context(), &list, s.namespace()); err != nil {
		return nil, err
	}
	return pick(s, slices.DeleteFunc(list.Items, func(js jobsetapi.JobSet) bool { return js.Status.TerminalState != "" || !can(&js) })), nil
}

// setSuspend suspends or resumes a JobSet, as its user.
func (s *soak) setSuspend(k kind) (string, error) {
	js, err := s.pickJobSet(func(js *jobsetapi.JobSet) bool { return ptr.Deref(js.Spec.Suspend, false) == (k == resumeJobSet) })
	if js == nil {
		return "", err
	}
	return client.ObjectKeyFromObject(js).String(), s.suspend(s.t.Context(), js, k)
}

// resizeJobSet makes the Jobs of a ReplicatedJob larger or smaller, as the user of the JobSet. It goes on to fit.
func (s *soak) resizeJobSet() (string, error) {
	js, err := s.pickJobSet(func(js *jobsetapi.JobSet) bool {
		return s.most[client.ObjectKeyFromObject(js)] > 0 && slices.ContainsFunc(js.Spec.ReplicatedJobs, isElastic)
	})
	if js == nil {
		return "", err
	}
	before := js.DeepCopy()
	i := s.random.IntN(len(js.Spec.ReplicatedJobs))
	for !isElastic(js.Spec.ReplicatedJobs[i]) {
		i = (i + 1) % len(js.Spec.ReplicatedJobs)
	}
	r := &js.Spec.ReplicatedJobs[i]
	pods := int32(1 + s.random.IntN(s.most[client.ObjectKeyFromObject(js)]/int(r.Replicas)))
	if pods == *r.Template.Spec.Parallelism {
		return "", nil
	}
	what := fmt.Sprintf("%s %s from %d to %d pods", client.ObjectKeyFromObject(js), r.Name, *r.Template.Spec.Parallelism, pods)
	r.Template.Spec.Parallelism, r.Template.Spec.Completions = &pods, &pods
	return what, s.admin.Patch(s.t.Context(), js, client.MergeFrom(before))
}

func (s *soak) suspend(ctx context.Context, js *jobsetapi.JobSet, k kind) error {
	before := js.DeepCopy()
	js.Spec.Suspend = new(k == suspendJobSet)
	return s.admin.Patch(ctx, js, client.MergeFrom(before))
}

func (s *soak) deleteJobSet() (string, error) {
	key := pick(s, s.jobSets)
	if key == nil || s.deleted[*key] {
		return "", nil
	}
	js := &jobsetapi.JobSet{}
	js.Namespace, js.Name = key.Namespace, key.Name
	err := s.admin.Delete(s.t.Context(), js, client.PropagationPolicy("Background"))
	if client.IgnoreNotFound(err) != nil {
		return key.String(), err
	}
	s.deleted[*key] = true
	return key.String(), nil
}

// settle ends the chaos: everything runs, all quota is what it was, and nothing is suspended by its user.
func (s *soak) settle() {
	s.t.Helper()
	s.log("the chaos has ended")
	s.outside.isCalm.Store(true)
	s.startJobSet()
	s.heedManager()
	if s.manager == nil {
		s.startManager()
	}
	for i := range tenants {
		s.await("restore quota", func(ctx context.Context) error {
			var q kueue.ClusterQueue
			if err := s.admin.Get(ctx, client.ObjectKey{Name: tenantName(i)}, &q); err != nil {
				return err
			}
			before := q.DeepCopy()
			q.Spec = clusterQueue(i).Spec
			return s.admin.Patch(ctx, &q, client.MergeFrom(before))
		})
	}
	s.await("resume all queued Jobs", s.resumeJobs)
	s.await("resume all JobSets", func(ctx context.Context) error {
		var list jobsetapi.JobSetList
		if err := s.admin.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			js := &list.Items[i]
			if js.Status.TerminalState == string(jobset.JobSetCompleted) || !ptr.Deref(js.Spec.Suspend, false) {
				continue
			}
			if err := s.suspend(ctx, js, resumeJobSet); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}
