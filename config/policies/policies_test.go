package policies_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/config/policies"
)

// With a limit that is no number, the policies would refuse all JobSets.
func TestLimits(t *testing.T) {
	for value, isRefused := range map[string]bool{"1": false, "5000": false, "0": true, "-1": true, "5e3": true, "": true, "3000000000": true} {
		err := policies.CheckLimits(map[string]string{"maxPods": value, "maxTerminationGracePeriod": "1h"})
		if (err != nil) != isRefused || err != nil && !strings.Contains(err.Error(), "data.maxPods") {
			t.Errorf("maxPods %q: %v", value, err)
		}
	}
	if err := policies.CheckLimits(map[string]string{"maxTerminationGracePeriod": "0s"}); err == nil {
		t.Error("a grace period of 0s is accepted")
	}
	if err := policies.CheckLimits(nil); err != nil {
		t.Errorf("without limits: %v", err)
	}
}
