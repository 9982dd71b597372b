package replay

import (
	"slices"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/snapshot"
)

// WithReservations returns a copy of the input in which a stage of any ClusterQueue waits for so long before quota is reserved for it: a duration, or Never.
func (in *Input) WithReservations(after string) *Input {
	changed := *in
	changed.Queues = slices.Clone(in.Queues)
	for i := range changed.Queues {
		objects := *changed.Queues[i].Objects
		if objects.Configuration = objects.Configuration.DeepCopy(); objects.Configuration == nil {
			objects.Configuration = &configapi.Configuration{}
		}
		objects.ClusterQueues = nil
		for _, q := range changed.Queues[i].Objects.ClusterQueues {
			objects.ClusterQueues = append(objects.ClusterQueues, q.DeepCopy())
		}
		SetReservations(&objects, after)
		changed.Queues[i].Objects = &objects
	}
	return &changed
}

// SetReservations sets how long a stage of any ClusterQueue waits before quota is reserved for it.
func SetReservations(s *snapshot.Snapshot, after string) {
	s.Configuration.Reservation.After = after
	for _, q := range s.ClusterQueues {
		delete(q.Annotations, apis.ReserveAfterAnnotation)
	}
}
