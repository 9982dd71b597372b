package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/controllers/metrics"
)

// TestGroups: a JobSet whose group waits counts once, however often that is recorded, and no longer when it does not wait.
func TestGroups(t *testing.T) {
	m := metrics.New(metrics.Replica{LeaderElection: true, Elected: make(chan struct{})})
	want := func(series string) {
		t.Helper()
		for _, c := range m.Collectors() {
			if testutil.CollectAndCount(c, "tranche_group_start_waiting_groups") == 0 {
				continue
			}
			expected := "# HELP tranche_group_start_waiting_groups Number of groups with pods that have started and wait for the other pods.\n" +
				"# TYPE tranche_group_start_waiting_groups gauge\ntranche_group_start_waiting_groups" + series + "\n"
			if err := testutil.CollectAndCompare(c, strings.NewReader(expected)); err != nil {
				t.Error(err)
			}
			return
		}
		t.Error("nothing is reported")
	}
	a, b := types.NamespacedName{Namespace: "ml", Name: "a"}, types.NamespacedName{Namespace: "ml", Name: "b"}
	m.GroupWaits(a)
	m.GroupWaits(b)
	m.GroupWaits(b)
	want(`{replica_role="follower"} 2`)
	m.GroupWaitsNot(b)
	m.GroupWaitsNot(b)
	want(`{replica_role="follower"} 1`)
	m.GroupReleased(-time.Second)
	m.GroupTimedOut()
	m.GroupWaitsNot(a)
	want(`{replica_role="follower"} 0`)
}
