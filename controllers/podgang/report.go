package podgang

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// gangMemo is what this process remembers of a gang, so that it reports each change once. No decision depends on it.
type gangMemo struct {
	// said is the last report, and heard are the pods that got it.
	said  podgang.Message
	heard sets.Set[types.UID]
	// peers are the peers of the gang. known is the state of the gang at the time when the gangs that name it were last requeued.
	peers []podgroup.Ref
	known string
	// plan is the plan of its parts, or empty.
	plan types.UID
	// attempt is the last write of the status of its PodGroup.
	attempt attempt
}

// memo returns the memory of a gang. Only the reconcile of this gang uses it, and a gang never has two reconciles at a time.
func (r *Reconciler) memo(ref podgroup.Ref) *gangMemo {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gangMemo[ref]
	if g == nil {
		g = &gangMemo{heard: sets.New[types.UID]()}
		r.gangMemo[ref] = g
	}
	return g
}

func isGone(s *snapshot) bool {
	return s.object == nil && len(s.Gang.All()) == 0 && len(s.Workloads) == 0
}

// report writes the state of a gang to its PodGroup, and emits Events on the PodGroup and its pods, each time the state changes. Of many pods
// only the first get an Event.
func (r *Reconciler) report(ctx context.Context, s *snapshot, step *podgang.Step) error {
	if isGone(s) {
		return nil
	}
	news, g := step.Message.Brief(), r.memo(s.Gang.Ref)
	isNews := g.said != news
	if isNews {
		g.heard.Clear()
	}
	deaf := g.deaf(s.Gang.All())
	isNoted := s.object == nil || s.object.GetAnnotations()[apis.GangMessageAnnotation] == news.Text
	if isNoted && (news.Text == "" || !isNews && len(deaf) == 0) {
		g.said = news
		return nil
	}
	if !r.reports.TryAccept() {
		// The current state is reported later.
		step.RequeueAfter = reportLater
		return nil
	}
	if !isNoted {
		if err := r.annotate(ctx, s.object, apis.GangMessageAnnotation, news.Text); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("note on PodGroup %s how its gang stands: %w", s.Gang.Full(), err)
		}
	}
	event := events.GangStatus(news.Reason, news.Topic, news.Text)
	if news.IsWarning {
		event = events.GangWarning(news.Reason, news.Topic, news.Text)
	}
	if s.object != nil && !isNoted && news.Text != "" {
		event.Emit(r.config.Recorder, s.object)
	}
	for _, pod := range deaf {
		if g.heard.Insert(pod.UID); news.Text != "" {
			event.Emit(r.config.Recorder, pod)
		}
	}
	g.said = news
	return nil
}

// deaf returns those of the first waiting pods that have not got the last report yet.
func (g *gangMemo) deaf(pods []*corev1.Pod) []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range pods[:min(len(pods), reportedPods)] {
		if !g.heard.Has(pod.UID) && podgroup.IsGated(pod) && pod.DeletionTimestamp == nil {
			all = append(all, pod)
		}
	}
	return all
}

// annotate sets an annotation of an object, or removes it if the value is empty.
func (r *Reconciler) annotate(ctx context.Context, object client.Object, key, value string) error {
	after, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T", object)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	after.SetAnnotations(annotations)
	return r.client.Patch(ctx, after, patch.IfSameUID(object))
}

// watch registers a gang to be requeued when its peers change, whether they name it or not. It must be called before the peers are read.
func (r *Reconciler) watch(ref podgroup.Ref, peers []podgroup.Ref) {
	g := r.memo(ref)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, peer := range g.peers {
		if delete(r.watchers[peer], ref); len(r.watchers[peer]) == 0 {
			delete(r.watchers, peer)
		}
	}
	for _, peer := range peers {
		if r.watchers[peer] == nil {
			r.watchers[peer] = sets.New[podgroup.Ref]()
		}
		r.watchers[peer].Insert(ref)
	}
	g.peers = peers
}

// requeuePeers requeues the gangs that name this one, when something has changed that they depend on.
func (r *Reconciler) requeuePeers(s *snapshot) {
	ref, p := s.Gang.Ref, podgang.PeerOf(&s.Snapshot)
	known := fmt.Sprint(p.Exists, p.IsWhole, p.IsAdmitted, p.HasStarted, p.HasEnded, p.Problem, p.GangGroup)
	g := r.memo(ref)
	isNews := g.known != known
	g.known = known
	if isGone(s) {
		r.leave(ref)
	}
	if !isNews {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for watcher := range r.watchers[ref] {
		r.queue.Add(requestOf(watcher))
	}
}

// observePlan sends the plan of the parts of a gang to the engine, before the parts are created and until they are deleted.
func (r *Reconciler) observePlan(s *snapshot, step *podgang.Step) {
	plan := podgang.PlanOf(slices.Concat(s.Workloads, step.Workloads(quotastep.Create)))
	if ended := r.follow(s.Gang.Ref, plan.UID); ended != "" {
		r.config.Runner.Observe(admission.PlanGone{UID: ended})
	}
	if plan.UID != "" {
		r.config.Runner.Observe(observation(s.Gang.Ref, plan))
	}
}

// follow records which plan the parts of a gang follow, and returns the plan that they no longer follow, or "".
func (r *Reconciler) follow(ref podgroup.Ref, plan types.UID) (ended types.UID) {
	g := r.memo(ref)
	if g.plan != plan {
		ended = g.plan
	}
	g.plan = plan
	return ended
}

// leave deletes the memory of a gang that no longer exists or is no longer managed.
func (r *Reconciler) leave(ref podgroup.Ref) {
	if ended := r.follow(ref, ""); ended != "" {
		r.config.Runner.Observe(admission.PlanGone{UID: ended})
	}
	r.watch(ref, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gangMemo, ref)
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
