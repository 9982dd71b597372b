package main

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// findKueueProblem returns the problem with Kueue's manager, which has a user name, as an Event. That without a reason is none.
func findKueueProblem(ctx context.Context, reader client.Reader, user string) (events.Event, error) {
	webhooks, err := listWebhooks(ctx, reader)
	if err != nil {
		return events.Event{}, err
	}
	if !isInstalled(webhooks) {
		return events.KueueMissing(), nil
	}
	version, err := takeover.KueueVersion(ctx, reader, user)
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
