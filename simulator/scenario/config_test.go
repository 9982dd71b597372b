package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/preempt"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// TestSettings sets every setting: a value that it takes, and for those that do not take any text also a value that it rejects.
func TestSettings(t *testing.T) {
	values := map[string]struct{ good, bad string }{
		"admission-fair-sharing.usage-half-life-time":    {"1h", "5"},
		"admission-fair-sharing.usage-sampling-interval": {"10m", "x"},
		"block-admission":                      {"true", "yes"},
		"charges.excluded-prefixes":            {"a.com,b.com", ""},
		"co-start.accelerators":                {"gpu,example.com/npu", "."},
		"co-start.enable":                      {"false", "never"},
		"co-start.reserve-for":                 {"10m", "-1s"},
		"devices":                              {"a:b/c,d:e/f", "a"},
		"reservation.after":                    {"20m", "never"},
		"fair-sharing":                         {"true", "1"},
		"keep-place-after-eviction":            {"true", "no"},
		"look-ahead.max-ahead":                 {"2", "-1"},
		"look-ahead.stalled-after":             {"20m", "soon"},
		"look-ahead.stages":                    {"1", "2"},
		"preemption-strategies":                {"LessThanInitialShare", ""},
		"preemption.least-work":                {"true", "little"},
		"preemption.minimum-runtime":           {"30m", "-1m"},
		"preemption.notice":                    {"2m", "-1m"},
		"stage-admission":                      {"Greedy", ""},
		"wait-for-pods-ready.block-admission":  {"true", "x"},
		"wait-for-pods-ready.enable":           {"false", "x"},
		"wait-for-pods-ready.recovery-timeout": {"0s", "-1s"},
		"wait-for-pods-ready.requeuing-strategy.backoff-base-seconds": {"7", "many"},
		"wait-for-pods-ready.requeuing-strategy.backoff-limit-count":  {"2", "99999999999"},
		"wait-for-pods-ready.requeuing-strategy.backoff-max-seconds":  {"8", "1.5"},
		"wait-for-pods-ready.requeuing-strategy.timestamp":            {"Creation", ""},
		"wait-for-pods-ready.timeout":                                 {"90s", "soon"},
	}
	if len(values) != len(scenario.Settings()) {
		t.Errorf("there are %d settings, and %d values", len(scenario.Settings()), len(values))
	}
	script := "# story\n"
	for _, key := range scenario.Settings() {
		script += "config " + key + "=" + values[key].good + "\n"
		if bad := values[key].bad; bad != "" {
			_, err := scenario.Parse("# story\nconfig " + key + "=" + bad + "\n")
			if err == nil || !strings.Contains(err.Error(), "line 2: config: "+key+": ") {
				t.Errorf("%s takes %q: %v", key, bad, err)
			}
		}
	}
	s, err := scenario.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	want := scenario.Config{
		Config: admission.Config{
			StageAdmission: admission.Greedy, FairSharing: true, PreemptionStrategies: []preempt.Strategy{preempt.LessThanInitialShare},
			AdmissionFairSharing: &admission.UsagePolicy{UsageHalfLifeTime: time.Hour, UsageSamplingInterval: 10 * time.Minute},
			BlockAdmission:       true, Charges: charge.Rules{ExcludedPrefixes: []string{"a.com", "b.com"}, Transformations: map[corev1.ResourceName]charge.Transformation{}},
			CoStart: admission.CoStart{ReserveFor: 10 * time.Minute}, Accelerators: []corev1.ResourceName{"gpu", "example.com/npu"},
			Reservation: admission.Reservation{IsEnabled: true, After: 20 * time.Minute}, LookAhead: admission.LookAhead{IsEnabled: true, MaxAhead: 2, StalledAfter: 20 * time.Minute}, MinimumRuntime: 30 * time.Minute, PreemptionNotice: 2 * time.Minute, LeastWork: true,
			Devices: device.Mapping{"a": "b/c", "d": "e/f"}, KeepPlaceAfterEviction: true,
		},
		WaitForPodsReady: configapi.WaitForPodsReady{
			Enable: new(false), Timeout: &metav1.Duration{Duration: 90 * time.Second}, RecoveryTimeout: &metav1.Duration{}, BlockAdmission: new(true),
			RequeuingStrategy: configapi.RequeuingStrategy{
				Timestamp: configapi.RequeuingTimestampCreation, BackoffLimitCount: new(int32(2)), BackoffBaseSeconds: new(int32(7)), BackoffMaxSeconds: new(int32(8)),
			},
		},
	}
	if diff := cmp.Diff(want, s.Config); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
