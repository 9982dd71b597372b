package apiwatch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
)

// problemInterval is how often the manager looks for a problem of the cluster.
const problemInterval = 10 * time.Second

// problemReportedEvery is how often a problem is reported again while it lasts: the API server keeps an Event for an hour.
const problemReportedEvery = 50 * time.Minute

// A ProblemWatch reports a problem of the cluster while it lasts, by an Event of the ConfigMap of the admission policies and in the log: Kueue's manager was
// uninstalled, or has a version beside which Tranche is not tested (decision 48), or the CRD of JobSets is not Tranche's. It changes and stops nothing.
type ProblemWatch struct {
	// Find returns the problem as an Event. That without a reason is none.
	Find     func(ctx context.Context) (events.Event, error)
	Recorder k8sevents.EventRecorder
	// problem is what was reported last, at the time reportedAt.
	problem    events.Event
	reportedAt time.Time
}

// Start reports until the context ends. Only the leader does. A request that fails is repeated at the next time.
func (w *ProblemWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(problemInterval)
	defer ticker.Stop()
	for {
		if problem, err := w.Find(ctx); err == nil {
			w.report(problem, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// report logs a problem and emits its Event if it is new, or was reported a while ago.
func (w *ProblemWatch) report(problem events.Event, now time.Time) {
	isNew := problem != w.problem
	if !isNew && (problem.Reason == "" || now.Sub(w.reportedAt) < problemReportedEvery) {
		return
	}
	log := ctrl.Log.WithName("cluster")
	if problem.Reason == "" {
		log.Info("The problem has ended", "reason", w.problem.Reason)
	} else {
		log.Info("Problem of the cluster", "reason", problem.Reason, "message", problem.Message)
		problem.Emit(w.Recorder, GuardsConfigMap())
	}
	w.problem, w.reportedAt = problem, now
}

// GuardsConfigMap returns the ConfigMap that names Kueue's manager, without its data: Events about that are on it.
func GuardsConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap},
	}
}
