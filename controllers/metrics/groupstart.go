package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// groupVectors are the metrics of groups of pods that start together. Only the leader runs the controller of groups, so only the leader
// reports them.
type groupVectors struct {
	groupWait     *prometheus.HistogramVec
	groupTimeouts *prometheus.CounterVec
	groupsWaiting *prometheus.GaugeVec
	waiting       *waitingGroups
}

// waitingGroups are the JobSets whose groups wait.
type waitingGroups struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]bool
}

func newGroupVectors(all *catalogue) groupVectors {
	g := groupVectors{
		groupWait: all.histogram("tranche_group_start_wait_seconds",
			"Time from the start of the first pod of a group to the start of the last pod, which released the group. Each restart attempt of a JobSet counts.",
			seconds(14), []string{"replica_role"}),
		groupTimeouts: all.counter("tranche_group_start_timeouts_total",
			"Number of groups with a pod that timed out waiting for the other pods. Each restart attempt of a JobSet counts once.", []string{"replica_role"}),
		groupsWaiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tranche_group_start_waiting_groups",
			Help: "Number of groups with pods that have started and wait for the other pods.",
		}, []string{"replica_role"}),
		waiting: &waitingGroups{groups: map[types.NamespacedName]bool{}},
	}
	*all = append(*all, g.groupsWaiting)
	return g
}

func (m *Metrics) changeWaiting(change func(groups map[types.NamespacedName]bool)) {
	m.waiting.mu.Lock()
	defer m.waiting.mu.Unlock()
	change(m.waiting.groups)
	m.groupsWaiting.WithLabelValues(m.replica.role()).Set(float64(len(m.waiting.groups)))
}

// GroupWaits records that pods of a JobSet's group wait for others.
func (m *Metrics) GroupWaits(jobSet types.NamespacedName) {
	m.changeWaiting(func(groups map[types.NamespacedName]bool) { groups[jobSet] = true })
}

// GroupWaitsNot records that no pods wait, or that there is no such group.
func (m *Metrics) GroupWaitsNot(jobSet types.NamespacedName) {
	m.changeWaiting(func(groups map[types.NamespacedName]bool) { delete(groups, jobSet) })
}

// GroupReleased records that all pods of a group have started, and how long the first of them has waited for that.
func (m *Metrics) GroupReleased(waited time.Duration) { observe(m.groupWait, waited, m.replica.role()) }

// GroupTimedOut counts a group with a pod that has given up.
func (m *Metrics) GroupTimedOut() { m.groupTimeouts.WithLabelValues(m.replica.role()).Inc() }
