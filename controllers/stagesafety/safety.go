package stagesafety

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Safety answers whether stages may open.
type Safety struct {
	runner runner
	woken  *feed
}

func newSafety(r runner) *Safety {
	s := &Safety{runner: r, woken: newFeed()}
	r.OnWoken(s.note)
	return s
}

// Unsafe returns why a stage of a JobSet must not open yet, or "". The plan must have been observed.
func (s *Safety) Unsafe(ctx context.Context, js *jobsetapi.JobSet, plan *stageplan.Plan, stage string) (string, error) {
	request := admission.OpenRequest{
		JobSet:     js.UID,
		Stage:      slices.IndexFunc(plan.Stages, func(st stageplan.Stage) bool { return st.Name == stage }),
		LocalQueue: localQueueOf(js),
	}
	var answer admission.Answer
	err := s.runner.Ask(ctx, func(e *admission.Engine) { answer = e.MayOpen(request) })
	return answer.Message, err
}

// Protection returns whether stages of a JobSet may hold quota while they wait for more. The plan must have been observed.
func (s *Safety) Protection(ctx context.Context, js *jobsetapi.JobSet) (protection admission.Protection, err error) {
	err = s.runner.Ask(ctx, func(e *admission.Engine) { protection = e.Protection(js.UID, localQueueOf(js)) })
	return protection, err
}

func localQueueOf(js *jobsetapi.JobSet) types.NamespacedName {
	return types.NamespacedName{Namespace: js.Namespace, Name: apis.QueueNameOf(js.Labels)}
}

// Changes has an event for each JobSet with a stage that must be judged again.
func (s *Safety) Changes() <-chan event.GenericEvent { return s.woken.changes }

// note is called on the goroutine of the engine.
func (s *Safety) note(owner admission.Owner) {
	if owner.Kind == admission.JobSetOwner {
		s.woken.note(&jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Key.Namespace, Name: owner.Key.Name}})
	}
}

// Start sends events until the context ends.
func (s *Safety) Start(ctx context.Context) error { return s.woken.Start(ctx) }
