package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics of groups of pods that start together. Only the leader runs the controller of groups, so only the leader reports them.
var (
	groupWait = histogram("tranche_group_start_wait_seconds",
		"Time for which the first pod of a group had waited when the last one had started, so that all were released. Each attempt of a JobSet counts.",
		14, []string{"replica_role"})
	groupTimeouts = counter("tranche_group_start_timeouts_total",
		"Number of groups of which a pod gave up waiting for the others. Each attempt of a JobSet counts once.", []string{"replica_role"})
	groupsWaiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tranche_group_start_waiting_groups",
		Help: "Number of groups of which some pods have started and wait for the others.",
	}, []string{"replica_role"})

	waiting = waitingGroups{groups: map[types.NamespacedName]bool{}}
)

// waitingGroups are the JobSets whose groups wait.
type waitingGroups struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]bool
}

func (w *waitingGroups) change(f func(groups map[types.NamespacedName]bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.groups)
	groupsWaiting.WithLabelValues(role()).Set(float64(len(w.groups)))
}

// GroupWaits records that pods of a JobSet's group wait for others.
func GroupWaits(jobSet types.NamespacedName) {
	waiting.change(func(groups map[types.NamespacedName]bool) { groups[jobSet] = true })
}

// GroupWaitsNot records that no pods wait, or that there is no such group.
func GroupWaitsNot(jobSet types.NamespacedName) {
	waiting.change(func(groups map[types.NamespacedName]bool) { delete(groups, jobSet) })
}

// GroupReleased records that all pods of a group have started, and how long the first of them has waited for that.
func GroupReleased(waited time.Duration) { observe(groupWait, waited, role()) }

// GroupTimedOut counts a group with a pod that has given up.
func GroupTimedOut() { groupTimeouts.WithLabelValues(role()).Inc() }
