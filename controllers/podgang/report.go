package podgang

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// gangMemo is what this process remembers of a gang, so that it reports each change once. No decision depends on it.
type gangMemo struct {
	// said is the last report, and heard are the pods that got it.
	said  podgang.Message
	heard map[types.UID]struct{}
	// peers are the peers of the gang. known is the state of the gang at the time when the gangs that name it were last requeued.
	peers []podgroup.Ref
	known string
	// plan is the plan of its parts, or empty.
	plan types.UID
	// attempt is the last write of the status of its PodGroup.
	attempt attempt
}

// remember runs f on the memory of a gang.
func (r *Reconciler) remember(ref podgroup.Ref, f func(*gangMemo)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangMemo[ref]
	if g == nil {
		g = &gangMemo{}
		r.gangMemo[ref] = g
	}
	f(g)
}

// forget deletes the memory of a gang that no longer exists.
func (r *Reconciler) forget(ref podgroup.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gangMemo, ref)
}

func isGone(s *snapshot) bool {
	return s.object == nil && len(s.Gang.All()) == 0 && len(s.Workloads) == 0
}

// subject returns the object of Events about a gang: its PodGroup, or else its first pod, or otherwise.
func (r *Reconciler) subject(s *snapshot, otherwise runtime.Object) runtime.Object {
	switch {
	case s.object != nil:
		return s.object
	case len(s.Gang.All()) > 0:
		return s.Gang.All()[0]
	}
	return otherwise
}

// report writes the state of a gang to its PodGroup, and emits Events on the PodGroup and its pods, each time the state changes. Of many pods
// only the first get an Event.
func (r *Reconciler) report(ctx context.Context, s *snapshot, step *podgang.Step) error {
	if isGone(s) {
		return nil
	}
	news, isNews := step.Message.Brief(), false
	var deaf []*corev1.Pod
	r.remember(s.Gang.Ref, func(g *gangMemo) {
		if isNews = g.said != news; isNews {
			g.heard = nil
		}
		deaf = g.deaf(s.Gang.All())
	})
	isNoted := s.object == nil || s.object.GetAnnotations()[apis.GangMessageAnnotation] == news.Text
	if isNoted && (news.Text == "" || !isNews && len(deaf) == 0) {
		r.remember(s.Gang.Ref, func(g *gangMemo) { g.said = news })
		return nil
	}
	if !r.told.TryAccept() {
		// The current state is reported later.
		step.RequeueAfter = tellLater
		return nil
	}
	if !isNoted {
		if err := r.note(ctx, s, news.Text); err != nil {
			return err
		}
	}
	event := events.GangStatus(news.Reason, news.Topic, news.Text)
	if news.IsWarning {
		event = events.GangWarning(news.Reason, news.Topic, news.Text)
	}
	if s.object != nil && !isNoted && news.Text != "" {
		event.Emit(r.config.Recorder, s.object)
	}
	heard := map[types.UID]struct{}{}
	for _, pod := range deaf {
		if heard[pod.UID] = struct{}{}; news.Text != "" {
			event.Emit(r.config.Recorder, pod)
		}
	}
	r.remember(s.Gang.Ref, func(g *gangMemo) {
		if g.said = news; g.heard == nil {
			g.heard = heard
		}
		maps.Copy(g.heard, heard)
	})
	return nil
}

// deaf returns those of the first waiting pods that have not got the last report yet.
func (g *gangMemo) deaf(pods []*corev1.Pod) []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range pods[:min(len(pods), toldPods)] {
		if _, ok := g.heard[pod.UID]; !ok && podgroup.IsGated(pod) && pod.DeletionTimestamp == nil {
			all = append(all, pod)
		}
	}
	return all
}

// note writes the state of a gang to its PodGroup.
func (r *Reconciler) note(ctx context.Context, s *snapshot, text string) error {
	after := s.object.DeepCopy()
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[apis.GangMessageAnnotation] = text; text == "" {
		delete(annotations, apis.GangMessageAnnotation)
	}
	after.SetAnnotations(annotations)
	if err := r.client.Patch(ctx, after, patch.IfSameUID(s.object)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("note on PodGroup %s how its gang stands: %w", s.Gang.Full(), err)
	}
	return nil
}

// watch registers a gang to be requeued when its peers change, whether they name it or not. It must be called before the peers are read.
func (r *Reconciler) watch(ref podgroup.Ref, peers []podgroup.Ref) {
	var before []podgroup.Ref
	r.remember(ref, func(g *gangMemo) { before, g.peers = g.peers, peers })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, peer := range before {
		if delete(r.watchers[peer], ref); len(r.watchers[peer]) == 0 {
			delete(r.watchers, peer)
		}
	}
	for _, peer := range peers {
		if r.watchers[peer] == nil {
			r.watchers[peer] = map[podgroup.Ref]struct{}{}
		}
		r.watchers[peer][ref] = struct{}{}
	}
}

// requeuePeers requeues the gangs that name this one, when something has changed that they depend on.
func (r *Reconciler) requeuePeers(ctx context.Context, s *snapshot) {
	ref, p, isNews := s.Gang.Ref, podgang.PeerOf(&s.Snapshot), false
	known := fmt.Sprint(p.Exists, p.IsWhole, p.IsAdmitted, p.HasStarted, p.HasEnded, p.Problem, p.GangGroup)
	r.remember(ref, func(g *gangMemo) { isNews, g.known = g.known != known, known })
	if isGone(s) {
		r.watch(ref, nil)
		r.forget(ref)
	}
	if !isNews {
		return
	}
	r.mu.Lock()
	watchers := slices.Collect(maps.Keys(r.watchers[ref]))
	r.mu.Unlock()
	for _, watcher := range watchers {
		select {
		case r.requeued <- event.TypedGenericEvent[podgroup.Ref]{Object: watcher}:
		case <-ctx.Done(): // the manager ends, and the next one reconciles every gang
		}
	}
}

// tellPlan sends the plan of the parts of a gang to the engine, before the parts are created and until they are deleted.
func (r *Reconciler) tellPlan(s *snapshot, step *podgang.Step) {
	plan := podgang.PlanOf(slices.Concat(s.Workloads, step.Create))
	if ended := r.follow(s.Gang.Ref, plan.UID); ended != "" {
		r.config.Runner.Observe(admission.PlanGone{UID: ended})
	}
	if plan.UID != "" {
		r.config.Runner.Observe(observation(s.Gang.Ref, plan))
	}
}

// follow records which plan the parts of a gang follow, and returns the plan that they no longer follow, or "".
func (r *Reconciler) follow(ref podgroup.Ref, plan types.UID) (ended types.UID) {
	r.remember(ref, func(g *gangMemo) {
		if g.plan != plan {
			ended = g.plan
		}
		g.plan = plan
	})
	return ended
}

// leave removes the records of a gang that is no longer managed.
func (r *Reconciler) leave(ref podgroup.Ref) {
	if ended := r.follow(ref, ""); ended != "" {
		r.config.Runner.Observe(admission.PlanGone{UID: ended})
	}
	r.watch(ref, nil)
	r.forget(ref)
}

func observation(ref podgroup.Ref, plan podgang.Plan) admission.Event {
	return admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}, UID: plan.UID, Submitted: plan.Submitted,
		StageAdmission: admission.Safe, Plan: plan.Stages,
	}
}

// feedPlans sends all plans to the engine before it decides anything.
func (r *Reconciler) feedPlans(ctx context.Context) error {
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.HasLabels{apis.PlanUIDLabel}); err != nil {
		return fmt.Errorf("list the parts of gangs: %w", err)
	}
	byPlan := map[string][]*kueue.Workload{}
	for i := range list.Items {
		uid := list.Items[i].Labels[apis.PlanUIDLabel]
		byPlan[uid] = append(byPlan[uid], &list.Items[i])
	}
	for _, parts := range byPlan {
		if ref, ok := refOfWorkload(parts[0]); ok {
			r.config.Runner.Observe(observation(ref, podgang.PlanOf(parts)))
		}
	}
	return nil
}
