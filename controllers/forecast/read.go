package forecast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/snapshot"
)

// Read returns a snapshot of the objects in the cache. They still belong to the cache: neither it nor a simulation changes them. It has the kinds
// that the manager watches, and of pods only those that terminate. These are all that a simulation reads.
func Read(ctx context.Context, c cache.Informers, config *configapi.Configuration, now time.Time) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{TakenAt: now.UTC().Truncate(time.Second), Configuration: config}
	err := errors.Join(
		read(ctx, c, &s.Namespaces), read(ctx, c, &s.ResourceFlavors), read(ctx, c, &s.AdmissionChecks), read(ctx, c, &s.PriorityClasses),
		read(ctx, c, &s.PodPriorityClasses), read(ctx, c, &s.Cohorts), read(ctx, c, &s.ClusterQueues), read(ctx, c, &s.LocalQueues),
		read(ctx, c, &s.LimitRanges), read(ctx, c, &s.RuntimeClasses), read(ctx, c, &s.JobSets), read(ctx, c, &s.Jobs), read(ctx, c, &s.Pods),
		read(ctx, c, &s.Workloads),
	)
	if len(config.Resources.DeviceClassMappings) > 0 { // only then the manager watches these
		err = errors.Join(err, read(ctx, c, &s.DeviceClasses), read(ctx, c, &s.ResourceClaimTemplates))
	}
	if err != nil {
		return nil, err
	}
	s.Jobs = slices.DeleteFunc(s.Jobs, func(job *batchv1.Job) bool { return job.Labels[jobset.JobSetNameKey] == "" })
	s.Pods = slices.DeleteFunc(s.Pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp.IsZero() })
	return s, nil
}

// read reads the objects of one kind, in the order of namespace and name.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c cache.Informers, into *[]P) error {
	all, err := informer.All[P](ctx, c, new(T))
	slices.SortFunc(all, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	*into = all
	return err
}

// WithoutFinished returns a snapshot without the JobSets that have finished and hold no quota, and without their quota Workloads and those of other
// jobs that have finished: they have no influence on what follows.
func WithoutFinished(s *snapshot.Snapshot) *snapshot.Snapshot {
	runs, terminal := map[types.UID]bool{}, map[types.UID]bool{}
	for _, js := range s.JobSets {
		terminal[js.UID] = js.Status.TerminalState != ""
		runs[js.UID] = !terminal[js.UID]
	}
	for _, w := range s.Workloads {
		if !isFinished(w) {
			runs[types.UID(w.Labels[apis.JobUIDLabel])] = true
		}
	}
	part := *s
	part.JobSets, part.Workloads = nil, nil
	for _, js := range s.JobSets {
		if runs[js.UID] {
			part.JobSets = append(part.JobSets, js)
		}
	}
	for _, w := range s.Workloads {
		if uid := types.UID(w.Labels[apis.JobUIDLabel]); !isFinished(w) || uid != "" && runs[uid] || w.Labels[apis.PlanUIDLabel] != "" {
			part.Workloads = append(part.Workloads, w)
		}
	}
	return &part
}

func isFinished(w *kueue.Workload) bool { return quotaworkload.IsTrue(w, kueue.WorkloadFinished) }
