package main

import "testing"

// TestIsUntested: only a version that is known can be one beside which Tranche is not tested.
func TestIsUntested(t *testing.T) {
	for version, want := range map[string]bool{
		"v0.19.0": false, "v0.19.2": false, "v0.19.0-rc.1": false, "v0.20.0": true, "v0.20.0-rc.1": true, "v0.18.9": true, "v1.0.0": true, "v1.19.0": true, "v0.190.0": true,
		"": false, "main": false, "v20260101-v0.18.0-5-gabcdef": false,
	} {
		if got := isUntested(version); got != want {
			t.Errorf("version %q is untested: %t, want %t", version, got, want)
		}
	}
}
