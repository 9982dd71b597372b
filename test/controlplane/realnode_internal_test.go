package controlplane

import (
	"net/netip"
	"testing"
)

// No two nodes share addresses, whatever ports their kubelets have, and none has addresses that others use.
func TestNetwork(t *testing.T) {
	shared := netip.MustParsePrefix("100.64.0.0/10")
	last := netip.Addr{}
	for port := firstPort; port <= lastPort; port++ {
		pods, gateway := network(port)
		if !shared.Contains(pods.Addr()) || pods != pods.Masked() || !pods.Contains(gateway) || gateway == pods.Addr() || pods.Contains(last) {
			t.Fatalf("network(%d) = %s, %s after one with %s, want other addresses of %s", port, pods, gateway, last, shared)
		}
		last = gateway
	}
}
