package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// How metrics are served is one choice: the configuration, the port of the pod and that of the Service agree.
func TestChartMetrics(t *testing.T) {
	for name, tc := range map[string]struct {
		values  []string
		metrics any
		port    float64
		mount   bool
	}{
		"by default":         {nil, nil, 8443, false},
		"with a certificate": {[]string{"--set=metrics.certSecret=certs"}, map[string]any{"certDir": "/etc/tranche-metrics"}, 8443, true},
		"in the open":        {[]string{"--set=metrics.secure=false", "--set=metrics.certSecret=certs"}, map[string]any{"secure": false}, 8080, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := objects(t, helm(t, tc.values...))
			served := field(t, got["ConfigMap/tranche-system/tranche-manager"], "data", "config.yaml").(map[string]any)["metrics"]
			if diff := cmp.Diff(tc.metrics, served); diff != "" {
				t.Errorf("configuration of the manager (-want +got):\n%s", diff)
			}
			container := field(t, got["Deployment/tranche-system/tranche-manager"], "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
			if port := container["ports"].([]any)[0].(map[string]any); port["name"] != "metrics" || port["containerPort"] != tc.port {
				t.Errorf("port of the pod: %v, want metrics on %v", port, tc.port)
			}
			service := field(t, got["Service/tranche-system/tranche-metrics"], "spec", "ports").([]any)[0].(map[string]any)
			if service["port"] != tc.port || service["targetPort"] != "metrics" {
				t.Errorf("port of the Service: %v, want %v", service, tc.port)
			}
			mounted := false
			for _, mount := range container["volumeMounts"].([]any) {
				mounted = mounted || mount.(map[string]any)["mountPath"] == "/etc/tranche-metrics"
			}
			if mounted != tc.mount {
				t.Errorf("the certificate is mounted: %t, want %t", mounted, tc.mount)
			}
		})
	}
}
