package quotaaudit

import "testing"

// TestSuspectIsJudged: a suspect whose devices are unknown is judged when it has stopped to change, and in the end also if it has not.
func TestSuspectIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		exceeds, changes bool
		want             int
	}{
		"exceeds, and changes": {true, true, 1},
		"unknown, and stays":   {false, false, 1},
		"unknown, and changes": {false, true, restlessChecks},
	} {
		last, got := suspect{exceeds: tc.exceeds}, 0
		for range 2 * restlessChecks {
			now := suspect{exceeds: tc.exceeds, fingerprint: last.fingerprint, checks: last.checks + 1}
			if tc.changes {
				now.fingerprint++
			}
			if got++; now.isDue(last) {
				break
			}
			last = now
		}
		if got != tc.want {
			t.Errorf("%s: judged at check %d, want %d", name, got, tc.want)
		}
	}
}
