// Package manager runs the engine and the lifecycle of the manager on the objects of a simulated cluster.
package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A Manager is the manager of a run.
type Manager struct {
	*cluster.Cluster
	Config scenario.Config
	Engine *admission.Engine
	// IsQuiet is true if the manager writes only what decides admission, and checks no invariants: it does not report why stages wait, which takes
	// time in proportion to all pending stages whenever quota is released.
	IsQuiet bool
	// Decided is called, unless it is nil, with each decision before it is written.
	Decided func(admission.Decision)
	// Failing are the targets whose next write will fail.
	Failing []scenario.Target
	// Writes counts the writes of Steps. The manager dies once, after DiesAfter of these writes, unless that is negative, and a new one starts
	// at once.
	Writes, DiesAfter int
	// FailsAfter is after how many writes of Steps one fails with a conflict, unless it is negative. If LosesAnswer is true, that write is applied, and
	// only its answer is lost.
	FailsAfter  int
	LosesAnswer bool
	// Calls has, if IsRecorded is true, every call that changed the engine since it was created, so that the engine can be copied.
	Calls      []func(*admission.Engine)
	IsRecorded bool
}

// New returns a manager without an engine.
func New(cl *cluster.Cluster) *Manager {
	m := &Manager{Cluster: cl, DiesAfter: -1, FailsAfter: -1}
	cl.Observe = m.observe
	return m
}

// Start creates the engine and lets it observe all objects.
func (m *Manager) Start() error {
	engine, err := admission.New(m.Config.Config)
	if err != nil {
		return fmt.Errorf("configure the engine: %w", err)
	}
	m.Engine, m.Calls = engine, nil
	for _, event := range m.InitialEvents() {
		m.observe(event)
	}
	return nil
}

// observe applies an event to the engine.
func (m *Manager) observe(event admission.Event) {
	m.call(func(e *admission.Engine) { e.Apply(event) })
}

// call changes the engine.
func (m *Manager) call(change func(*admission.Engine)) {
	change(m.Engine)
	if m.IsRecorded {
		m.Calls = append(m.Calls, change)
	}
}

// reportViolations reports the invariants that the engine finds broken.
func (m *Manager) reportViolations() {
	if m.IsQuiet {
		return
	}
	for _, violation := range m.Engine.Violations() {
		m.ReportViolation("%s", violation)
	}
}

// Decide runs scheduling cycles of the engine.
func (m *Manager) Decide() (decisions []admission.Decision) {
	now := m.Time()
	m.call(func(e *admission.Engine) { decisions = e.Decide(now) })
	m.reportViolations()
	return decisions
}

// Crash creates a new engine. The last decisions of the old one are never written.
func (m *Manager) Crash() {
	m.Decide()
	m.Log("crash")
	m.Restart()
}

// CrashAfter lets the manager die after some more writes, or at once.
func (m *Manager) CrashAfter(writes *int32) {
	if writes == nil {
		m.Crash()
		return
	}
	m.DiesAfter = m.Writes + int(*writes)
}

// Restart starts a new manager, which reads all objects. The order at this instant is that without a restart: the changes of objects come first, so
// that pods which have just become ready are ready in time for a quota Workload whose time has come.
func (m *Manager) Restart() {
	clear(m.Previous)
	m.WorkloadQueue.Forget()
	m.WorkloadQueue.AwaitAll(m.Cluster, m.Now)
	m.JobSetQueue.Forget()
	for _, jobs := range []map[types.NamespacedName]*cluster.UserJob{m.UserJobs, m.QueuedJobs, m.PlainJobs} {
		for key := range jobs {
			m.JobSetQueue.Add(key)
		}
	}
	if err := m.Start(); err != nil {
		m.Fail(err)
	}
}

// WriteConsumption writes the consumed usage into the status of LocalQueues, where the engine reads it after a crash.
func (m *Manager) WriteConsumption() {
	if m.IsQuiet {
		return
	}
	for key, queue := range m.LocalQueues {
		if view, ok := m.Engine.LocalQueue(key); ok {
			queue.Status.FairSharing = view.FairSharing.DeepCopy()
		}
	}
}
