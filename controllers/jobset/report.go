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

	"github.com/tranche-dev/tranche/admission/checkpoint"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
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
	news map[types.NamespacedName]unreportedConditions
}

// unreportedConditions has the new conditions of a JobSet, since when they have had this content, and since when the written conditions have been outdated.
type unreportedConditions struct {
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
// has finished or is refused, or was adopted.
func (r *Reconciler) report(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if s.JobSet == nil || isReported(s.JobSet, w.Conditions) {
		r.unreported.forget(s.Key)
	} else {
		over, _ := jobsetstate.OutcomeOf(s.JobSet)
		if left := r.unreported.wait(s.Key, w.Conditions, s.Now); left > 0 && !over && s.Plan != nil && s.Target == nil {
			w.RequeueWithin(left)
			return nil
		}
	}
	return r.reportConditions(ctx, s, w)
}

// reportConditions writes the conditions of the JobSet if they have changed, and emits complaints.
func (r *Reconciler) reportConditions(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if s.JobSet == nil {
		return nil
	}
	if !isReported(s.JobSet, w.Conditions) {
		err := patch.ApplyStatus(ctx, r.config.Client, s.JobSet, client.FieldOwner(apis.FieldManager), &patch.Conditions{Conditions: w.Conditions})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write conditions of JobSet %s: %w", s.Key, err)
		}
		if w.Wait != nil && r.waits.TryAccept() {
			news := events.StageWaiting
			if w.Wait.IsTooLarge() {
				news = events.StageTooLarge
			}
			news(w.Wait.Reason, w.Wait.Message).EmitAbout(r.config.Recorder, s.JobSet, w.Wait.Workload)
		}
		if w.GangBlocked != "" {
			events.GangBlocked(w.GangBlocked).Emit(r.config.Recorder, s.JobSet)
		}
		if w.PriorityKept != "" {
			events.PriorityKept(w.PriorityKept).Emit(r.config.Recorder, s.JobSet)
		}
	}
	if w.Pruned != "" {
		events.SpecPruned(w.Pruned).Emit(r.config.Recorder, s.JobSet)
	}
	if remark := checkpoint.Remark(s.JobSet.Annotations, s.Now); remark != "" {
		events.CheckpointIgnored(remark).Emit(r.config.Recorder, s.JobSet)
	}
	for _, complaint := range w.Complaints {
		if s.Refusal != "" {
			events.Misconfigured(complaint).Emit(r.config.Recorder, s.JobSet)
		} else {
			events.JobRefused(complaint).Emit(r.config.Recorder, s.JobSet)
		}
	}
	return nil
}

// reportRefused reports on the JobSet that one of its quota Workloads was rejected.
func (r *Reconciler) reportRefused(ctx context.Context, s *jobsetstate.Snapshot, refused *refusedWorkload) (ctrl.Result, error) {
	why := refused.Error()
	if err := r.reportConditions(ctx, s, stages.Refused(s, why)); err != nil {
		return ctrl.Result{}, err
	}
	events.Misconfigured(why).Emit(r.config.Recorder, s.JobSet)
	return ctrl.Result{RequeueAfter: workloadstatus.RecheckAfter}, nil
}

func isReported(js *jobsetapi.JobSet, all []metav1.Condition) bool {
	reported := 0
	for _, c := range js.Status.Conditions {
		if jobsetstatus.IsOwned(c.Type) {
			reported++
		}
	}
	return reported == len(all) && !slices.ContainsFunc(all, func(c metav1.Condition) bool {
		return !jobsetstatus.Has(js.Status.Conditions, c) || apimeta.FindStatusCondition(js.Status.Conditions, c.Type).ObservedGeneration != c.ObservedGeneration
	})
}
