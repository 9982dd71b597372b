package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// kueueInterval is how often a manager beside Kueue's looks whether that is still there.
const kueueInterval = 10 * time.Second

// kueueReportedEvery is how often a problem with Kueue's manager is reported again while it lasts: the API server keeps an Event for an hour.
const kueueReportedEvery = 50 * time.Minute

// A besideWatch reports while the manager runs beside Kueue's that the latter was uninstalled, or has a version beside which Tranche is not tested
// (decision 48). It changes and stops nothing.
type besideWatch struct {
	reader   client.Reader
	recorder k8sevents.EventRecorder
	// problem is what was reported last, at the time reportedAt.
	problem    events.Event
	reportedAt time.Time
}

// Start reports until the context ends. Only the leader does. A request that fails is repeated at the next time.
func (w *besideWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(kueueInterval)
	defer ticker.Stop()
	for {
		if problem, err := w.find(ctx); err == nil {
			w.report(problem, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// find returns the problem with Kueue's manager as an Event. That without a reason is none.
func (w *besideWatch) find(ctx context.Context) (events.Event, error) {
	guards := guardsConfigMap()
	if err := w.reader.Get(ctx, client.ObjectKeyFromObject(guards), guards); err != nil {
		return events.Event{}, fmt.Errorf("read ConfigMap %s: %w", apis.GuardsConfigMap, err)
	}
	webhooks, err := listWebhooks(ctx, w.reader)
	if err != nil {
		return events.Event{}, err
	}
	if !isInstalled(webhooks) {
		return events.KueueMissing(), nil
	}
	version, err := takeover.KueueVersion(ctx, w.reader, guards.Data["kueueManager"])
	if err != nil || !isUntested(version) {
		return events.Event{}, err
	}
	return events.KueueUntested(version, takeover.Supported+"x"), nil
}

// isUntested reports whether Kueue's manager has another minor version than that beside which Tranche is tested. A version that is not known may be any.
func isUntested(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "v%d.%d.", &major, &minor)
	return err == nil && !strings.HasPrefix(version, takeover.Supported)
}

// report logs a problem and emits its Event if it is new, or was reported a while ago.
func (w *besideWatch) report(problem events.Event, now time.Time) {
	isNew := problem != w.problem
	if !isNew && (problem.Reason == "" || now.Sub(w.reportedAt) < kueueReportedEvery) {
		return
	}
	log := ctrl.Log.WithName("kueue")
	if problem.Reason == "" {
		log.Info("No problem with Kueue's manager any longer", "reason", w.problem.Reason)
	} else {
		log.Info("Problem with Kueue's manager", "reason", problem.Reason, "message", problem.Message)
		problem.Emit(w.recorder, guardsConfigMap())
	}
	w.problem, w.reportedAt = problem, now
}

// guardsConfigMap returns the ConfigMap that names Kueue's manager, without its data: Events about that are on it.
func guardsConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap},
	}
}
