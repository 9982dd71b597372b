package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// Read returns a snapshot of the objects in the cache. They still belong to the cache: neither it nor a simulation changes them. It has the kinds
// that the manager watches, and of pods only those that terminate. These are all that a simulation reads.
func Read(ctx context.Context, cache client.Reader, config *configapi.Configuration, now time.Time) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{TakenAt: now.UTC().Truncate(time.Second), Configuration: config}
	var (
		namespaces    corev1.NamespaceList
		flavors       kueue.ResourceFlavorList
		checks        kueue.AdmissionCheckList
		classes       kueue.WorkloadPriorityClassList
		podClasses    schedulingv1.PriorityClassList
		cohorts       kueue.CohortList
		clusterQueues kueue.ClusterQueueList
		localQueues   kueue.LocalQueueList
		limitRanges   corev1.LimitRangeList
		runtimes      nodev1.RuntimeClassList
		jobSets       jobsetapi.JobSetList
		jobs          batchv1.JobList
		pods          corev1.PodList
		workloads     kueue.WorkloadList
	)
	all := []client.ObjectList{
		&namespaces, &flavors, &checks, &classes, &podClasses, &cohorts, &clusterQueues, &localQueues, &limitRanges, &runtimes, &jobSets, &jobs, &pods, &workloads,
	}
	for _, list := range all {
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("read %T from the cache: %w", list, err)
		}
	}
	s.Namespaces, s.ResourceFlavors, s.AdmissionChecks = sorted(namespaces.Items), sorted(flavors.Items), sorted(checks.Items)
	s.PriorityClasses, s.PodPriorityClasses, s.Cohorts = sorted(classes.Items), sorted(podClasses.Items), sorted(cohorts.Items)
	s.ClusterQueues, s.LocalQueues = sorted(clusterQueues.Items), sorted(localQueues.Items)
	s.LimitRanges, s.RuntimeClasses = sorted(limitRanges.Items), sorted(runtimes.Items)
	s.JobSets, s.Workloads = sorted(jobSets.Items), sorted(workloads.Items)
	s.Jobs = slices.DeleteFunc(sorted(jobs.Items), func(job *batchv1.Job) bool { return job.Labels[jobset.JobSetNameKey] == "" })
	s.Pods = slices.DeleteFunc(sorted(pods.Items), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp.IsZero() })
	return s, readDevices(ctx, cache, config, s)
}

// readDevices adds the kinds that the manager watches only if quota is charged for devices.
func readDevices(ctx context.Context, cache client.Reader, config *configapi.Configuration, s *snapshot.Snapshot) error {
	if len(config.Resources.DeviceClassMappings) == 0 {
		return nil
	}
	var classes resourcev1.DeviceClassList
	var templates resourcev1.ResourceClaimTemplateList
	if err := errors.Join(cache.List(ctx, &classes, client.UnsafeDisableDeepCopy), cache.List(ctx, &templates, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("read devices from the cache: %w", err)
	}
	s.DeviceClasses, s.ResourceClaimTemplates = sorted(classes.Items), sorted(templates.Items)
	return nil
}

// sorted returns objects in the order of namespace and name.
func sorted[T any, P interface {
	*T
	metav1.Object
}](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	slices.SortFunc(all, func(a, b *T) int {
		return cmp.Or(cmp.Compare(P(a).GetNamespace(), P(b).GetNamespace()), cmp.Compare(P(a).GetName(), P(b).GetName()))
	})
	return all
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
