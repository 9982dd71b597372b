package jobset

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/events"
)

// The manager writes the conditions of a JobSet once they have had the same new content for reportAfter, and at the latest when they have
// been outdated for reportLatest. When one stage follows another, the state of the JobSet changes three times within a moment, and the
// larger the JobSet, the more a write costs: the API server compares all pod templates, and the JobSet controller has to repeat its own
// write.
const (
	reportAfter  = time.Second
	reportLatest = 10 * time.Second
)

// unreported has the JobSets whose conditions are outdated. Its methods may be called from several goroutines.
type unreported struct {
	mu   sync.Mutex
	news map[types.NamespacedName]news
}

// news has the new conditions of a JobSet, since when they have had this content, and since when the written conditions have been outdated.
type news struct {
	conditions   []metav1.Condition
	since, first time.Time
}

// wait returns how much longer to wait before the conditions of a JobSet are written. Zero means that they are written now, and that the
// next ones wait again, because the cache may not show the write at once.
func (u *unreported) wait(key types.NamespacedName, wanted []metav1.Condition, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, known := u.news[key]
	if !known {
		n.first = now
	}
	if !known || !isSame(n.conditions, wanted) {
		n.conditions, n.since = wanted, now
	}
	left := min(reportAfter-now.Sub(n.since), reportLatest-now.Sub(n.first))
	if left <= 0 {
		n.since, n.first, left = now, now, 0
	}
	u.news[key] = n
	return left
}

// isSame compares the content of conditions, without their times.
func isSame(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
}

func (u *unreported) forget(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.news, key)
}

// report writes the conditions of the JobSet if they have been outdated for a while, and emits complaints. It writes at once if the JobSet
// has finished or is refused.
func (r *Reconciler) report(ctx context.Context, s *snapshot, w *actions) error {
	if s.jobSet == nil || isReported(s.jobSet, w.conditions) {
		r.unreported.forget(s.key)
	} else {
		over, _ := outcomeOf(s.jobSet)
		if left := r.unreported.wait(s.key, w.conditions, s.now); left > 0 && !over && s.plan != nil {
			w.lookAfter(left)
			return nil
		}
	}
	return r.tell(ctx, s, w)
}

// tell writes the conditions of the JobSet if they have changed, and emits complaints.
func (r *Reconciler) tell(ctx context.Context, s *snapshot, w *actions) error {
	if s.jobSet == nil {
		return nil
	}
	if !isReported(s.jobSet, w.conditions) {
		patch, err := conditions.JobSetPatch(s.jobSet, w.conditions)
		if err != nil {
			return fmt.Errorf("render conditions of JobSet %s: %w", s.key, err)
		}
		err = r.config.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(apis.FieldManager), client.ForceOwnership)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write conditions of JobSet %s: %w", s.key, err)
		}
		if w.wait != nil && r.waits.TryAccept() {
			news := events.StageWaiting
			if w.wait.IsTooLarge() {
				news = events.StageTooLarge
			}
			news(w.wait.Reason, w.wait.Message).EmitAbout(r.config.Recorder, s.jobSet, w.wait.Workload)
		}
		if w.gangBlocked != "" {
			events.GangBlocked(w.gangBlocked).Emit(r.config.Recorder, s.jobSet)
		}
		if w.priorityKept != "" {
			events.PriorityKept(w.priorityKept).Emit(r.config.Recorder, s.jobSet)
		}
	}
	for _, complaint := range w.complaints {
		if s.refusal != "" {
			events.Misconfigured(complaint).Emit(r.config.Recorder, s.jobSet)
		} else {
			events.JobRefused(complaint).Emit(r.config.Recorder, s.jobSet)
		}
	}
	return nil
}

// tellRefused reports on the JobSet that one of its quota Workloads was rejected.
func (r *Reconciler) tellRefused(ctx context.Context, s *snapshot, refused *refusedWorkload) (ctrl.Result, error) {
	why := refused.Error()
	told := &actions{conditions: withGangs(s, conditions.JobSetRefused(s.jobSet, why), gangWait{})}
	if err := r.tell(ctx, s, told); err != nil {
		return ctrl.Result{}, err
	}
	events.Misconfigured(why).Emit(r.config.Recorder, s.jobSet)
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

func isReported(js *jobsetapi.JobSet, all []metav1.Condition) bool {
	reported := 0
	for _, c := range js.Status.Conditions {
		if conditions.IsOwned(c.Type) {
			reported++
		}
	}
	return reported == len(all) && !slices.ContainsFunc(all, func(c metav1.Condition) bool {
		return !conditions.Has(js.Status.Conditions, c) || apimeta.FindStatusCondition(js.Status.Conditions, c.Type).ObservedGeneration != c.ObservedGeneration
	})
}
