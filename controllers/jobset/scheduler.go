package jobset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// chooseScheduler determines which scheduler places the gangs of a JobSet, and returns the backend of its objects.
func (r *Reconciler) chooseScheduler(ctx context.Context, s *jobsetstate.Snapshot) (*gangobjects.Backend, error) {
	backend := r.config.Gangs.Default
	s.Scheduler.API, s.Scheduler.Default = backend.API, backend.API.Name
	members := jobsetstate.GangMembers(s.JobSet)
	if len(members) == 0 {
		return backend, nil
	}
	name, field := s.Scheduler.Of(jobsetstate.PodTemplateOf(s.JobSet, members[0])), "the pod templates"
	if !jobsetstate.IsStarted(s.JobSet) && !s.IsUnqueued {
		var err error
		if name, field, err = r.annotatedScheduler(ctx, s); err != nil {
			return nil, err
		}
	}
	chosen, err := r.config.Gangs.Of(cmp.Or(name, s.Scheduler.Default))
	if err != nil {
		s.Scheduler.Problem = fmt.Sprintf("metadata.annotations[%s] of %s: %v; until then it is %s", apis.GangProviderAnnotation, field, err, backend.API.Name)
		return backend, nil
	}
	s.Scheduler.API, s.Scheduler.SchedulerName = chosen.API, chosen.SchedulerName
	return chosen, nil
}

// annotatedScheduler returns the scheduler that a flavor or the LocalQueue of a JobSet names, and the object that does.
func (r *Reconciler) annotatedScheduler(ctx context.Context, s *jobsetstate.Snapshot) (name, object string, err error) {
	for _, flavor := range slices.Sorted(maps.Keys(s.Flavors)) {
		if name := s.Flavors[flavor].Annotations[apis.GangProviderAnnotation]; name != "" {
			return name, fmt.Sprintf("ResourceFlavor %q", flavor), nil
		}
	}
	var queue kueue.LocalQueue
	key := types.NamespacedName{Namespace: s.Key.Namespace, Name: string(jobsetstate.QueueOf(s.JobSet))}
	if err := r.config.Client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("read LocalQueue %s: %w", key, err)
	}
	return queue.Annotations[apis.GangProviderAnnotation], fmt.Sprintf("LocalQueue %q", key.Name), nil
}
