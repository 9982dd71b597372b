package controlplane_test

import (
	"testing"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// TestFreePort checks that no port is drawn twice: nothing listens yet on the ports that were drawn before.
func TestFreePort(t *testing.T) {
	drawn := map[int]bool{}
	for range 600 {
		port, err := controlplane.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if drawn[port] {
			t.Fatalf("port %d is drawn twice", port)
		}
		drawn[port] = true
	}
}
