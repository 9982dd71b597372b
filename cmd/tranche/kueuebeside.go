package main

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// findKueueProblem returns the problem with Kueue's manager as an Event. That without a reason is none.
func findKueueProblem(ctx context.Context, reader client.Reader) (events.Event, error) {
	guards := apiwatch.GuardsConfigMap()
	if err := reader.Get(ctx, client.ObjectKeyFromObject(guards), guards); err != nil {
		return events.Event{}, fmt.Errorf("read ConfigMap %s: %w", apis.GuardsConfigMap, err)
	}
	webhooks, err := listWebhooks(ctx, reader)
	if err != nil {
		return events.Event{}, err
	}
	if !isInstalled(webhooks) {
		return events.KueueMissing(), nil
	}
	version, err := takeover.KueueVersion(ctx, reader, guards.Data["kueueManager"])
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
