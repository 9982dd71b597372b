package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChartMonitoring checks that the values reach the ServiceMonitor, the alerts and the dashboard.
func TestChartMonitoring(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	for name, tc := range map[string]struct {
		values   []string
		endpoint map[string]any
	}{
		"with a certificate": {
			[]string{"--set=metrics.certSecret=certs", `--set-json=monitoring.tlsConfig={"insecureSkipVerify":false,"serverName":"m"}`},
			map[string]any{
				"port": "metrics", "scheme": "https", "honorLabels": true, "bearerTokenFile": token,
				"tlsConfig": map[string]any{"insecureSkipVerify": false, "serverName": "m"},
			},
		},
		"in plain text": {
			[]string{"--set=metrics.secure=false"}, map[string]any{"port": "metrics", "scheme": "http", "honorLabels": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			values := append(tc.values, "--set=monitoring.enabled=true", "--set=monitoring.labels.release=stack",
				`--set-json=monitoring.dashboardLabels={"grafana_dashboard":null,"board":"yes"}`)
			got := objects(t, helm(t, values...))
			labels := map[string]any{"app.kubernetes.io/name": "tranche", "app.kubernetes.io/component": "metrics", "release": "stack"}
			for key, want := range map[string]map[string]any{
				"ServiceMonitor/tranche-system/tranche": labels, "PrometheusRule/tranche-system/tranche": labels,
				"ConfigMap/tranche-system/tranche-dashboard": {"board": "yes"},
			} {
				if diff := cmp.Diff(want, field(t, got[key], "metadata", "labels")); diff != "" {
					t.Errorf("labels of %s (-want +got):\n%s", key, diff)
				}
			}
			endpoints := field(t, got["ServiceMonitor/tranche-system/tranche"], "spec", "endpoints")
			if diff := cmp.Diff([]any{tc.endpoint}, endpoints); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
}
