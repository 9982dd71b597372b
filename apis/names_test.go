package apis_test

import (
	"testing"

	"github.com/tranche-dev/tranche/apis"
)

func TestQueueNameOf(t *testing.T) {
	for name, c := range map[string]struct{ kueues, own, want string }{
		"none":            {"", "", ""},
		"that of Kueue":   {"a", "", "a"},
		"that of Tranche": {"", "b", "b"},
		"both":            {"a", "b", "b"},
	} {
		labels := map[string]string{}
		if c.kueues != "" {
			labels[apis.QueueLabel] = c.kueues
		}
		if c.own != "" {
			labels[apis.OwnQueueLabel] = c.own
		}
		if got := apis.QueueNameOf(labels); got != c.want {
			t.Errorf("%s: queue %q, want %q", name, got, c.want)
		}
	}
}
