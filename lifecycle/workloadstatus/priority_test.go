package workloadstatus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Every tenant may name the classes of Kubernetes itself, and those that an administrator has limited, so they give no priority.
func TestPodPriority(t *testing.T) {
	for name, c := range map[string]struct {
		class     string
		value     int32
		limit     int32
		want      int32
		wantClass *kueue.PriorityClassRef
	}{
		"no class":                           {"", 0, 1_000_000_000, 0, nil},
		"a class of an administrator":        {"urgent", 5, 1_000_000_000, 5, kueue.NewPodPriorityClassRef("urgent")},
		"the highest of an administrator":    {"urgent", 1_000_000_000, 1_000_000_000, 1_000_000_000, kueue.NewPodPriorityClassRef("urgent")},
		"a negative one":                     {"idle", -5, 1_000_000_000, -5, kueue.NewPodPriorityClassRef("idle")},
		"a class of Kubernetes":              {"system-node-critical", 2_000_001_000, 1_000_000_000, 0, nil},
		"a pod that has its priority only":   {"", 7, 1_000_000_000, 7, nil},
		"above the limit":                    {"urgent", 101, 100, 0, nil},
		"as high as the limit":               {"urgent", 100, 100, 100, kueue.NewPodPriorityClassRef("urgent")},
		"with a limit of 0":                  {"idle", -5, 0, -5, kueue.NewPodPriorityClassRef("idle")},
		"a class of Kubernetes without name": {"", 2_000_000_000, 1_000_000_000, 0, nil},
	} {
		got, class := workloadstatus.PodPriority(c.class, c.value, c.limit)
		if got != c.want || !cmp.Equal(class, c.wantClass) {
			t.Errorf("%s: priority %d of %v, want %d of %v", name, got, class, c.want, c.wantClass)
		}
	}
}
