package quotaworkload_test

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/constant"
)

// reason is what the API server accepts as the reason of a condition.
var reason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// TestGatesAreKnown finds the gates in the source, so that none can be added without a message, or with a name that no condition can have.
func TestGatesAreKnown(t *testing.T) {
	found, everyGate := 0, []string(nil)
	for name, gate := range constant.Strings(t, "../../apis") {
		if !strings.HasSuffix(name, "Gate") || gate == apis.PodAdmissionGate {
			continue
		}
		found++
		everyGate = append(everyGate, gate)
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: gate}}}
		if g := quotaworkload.GateOf(w); g == nil || strings.Contains(g.Message, gate) {
			t.Errorf("%s has no message: %+v", name, g)
		}
		if !strings.HasPrefix(gate, "tranche.dev/") {
			t.Errorf("%s is %q: no bar can name it, and it counts as that of another controller", name, gate)
		}
	}
	if found < 6 {
		t.Errorf("found %d gates, want six at least", found)
	}
	// The names of all gates together are the longest reason that a bar has.
	if bar := quotaworkload.Bar(everyGate); !reason.MatchString(bar.Reason) || len(bar.Reason) > 1024 {
		t.Errorf("all gates make the reason %q, which the API server refuses", bar.Reason)
	}
}
