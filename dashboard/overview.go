package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	accelerator "github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Limits of an OverviewAnswer.
const (
	maxAccelerators = 20
	maxPoints       = 144
	maxUsers        = 10
	maxWaiting      = 5
	maxChanges      = 10
	// maxOverviewVisits bounds what is visited of a list of which the viewer sees few rows.
	maxOverviewVisits = 2000
)

// The parts of what quota Workloads hold of an accelerator, after its quota. Only the first is not idle.
const (
	partQuota = iota
	partInUse
	partNotReady
	partChecks
	partLaterStages
	partEvicting
	parts
)

// An acceleratorUse has a value for each part.
type acceleratorUse[T any] [parts]T

// acceleratorUses returns what quota Workloads hold of each accelerator in all ClusterQueues now, as the tree of queues shows it.
func (m *Model) acceleratorUses() map[quota.FlavorResource]*acceleratorUse[float64] {
	uses := map[quota.FlavorResource]*acceleratorUse[float64]{}
	of := func(fr quota.FlavorResource) *acceleratorUse[float64] {
		if uses[fr] == nil {
			uses[fr] = &acceleratorUse[float64]{}
		}
		return uses[fr]
	}
	for _, q := range m.clusterQueues {
		if !q.exists {
			continue
		}
		for _, l := range m.limitsOf(q) {
			if accelerator.IsAccelerator(l.Resource) {
				m.addUse(of(l.FlavorResource), q, &l)
			}
		}
	}
	for _, c := range m.cohorts {
		for _, l := range c.limits {
			if accelerator.IsAccelerator(l.Resource) {
				of(l.FlavorResource)[partQuota] += units(l.Resource, l.Nominal)
			}
		}
	}
	return uses
}

// addUse adds what is held of one flavor and resource in a ClusterQueue. Without all quota Workloads the parts are not known.
func (m *Model) addUse(use *acceleratorUse[float64], q *clusterQueue, l *flavorLimit) {
	fr := l.FlavorResource
	u := q.usageOf(fr)
	use[partQuota] += units(fr.Resource, l.Nominal)
	if m.isPartial {
		use[partInUse] += units(fr.Resource, u.reserved)
		return
	}
	// The quota Workloads may be newer than the status.
	rest := u.reserved
	take := func(amount quota.Amount) float64 {
		amount = min(max(0, amount), rest)
		rest = rest.Minus(amount)
		return units(fr.Resource, amount)
	}
	notAdmitted := max(0, u.reserved.Minus(u.admitted))
	checks := min(q.charges[Reserved][fr], notAdmitted)
	use[partChecks] += take(checks)
	use[partLaterStages] += take(notAdmitted.Minus(checks))
	use[partNotReady] += take(q.charges[Starting][fr])
	use[partEvicting] += take(q.charges[Evicting][fr])
	use[partInUse] += take(rest)
}

// chargeNamespace adds the charge of a quota Workload to what its namespace holds, or subtracts it if sign is -1.
func (m *Model) chargeNamespace(w *workload, sign quota.Amount) {
	n := m.namespaces[w.key.Namespace]
	addCharges(n.held, w, sign)
	if w.state == Starting {
		addCharges(n.idle, w, sign)
	}
}

// An OverviewAnswer sums up all ClusterQueues.
type OverviewAnswer struct {
	// Times are in seconds since 1970: those of samples since the dashboard was started, of one day at most, and the last is now.
	Times        []int64             `json:"times"`
	Accelerators []AcceleratorAnswer `json:"accelerators"`
	// OmittedAccelerators is how many more there are, all with less quota.
	OmittedAccelerators int `json:"omittedAccelerators,omitempty"`
	// IsPartial is true if not all quota Workloads could be read, so that idle quota is not known.
	IsPartial bool `json:"partial,omitempty"`
	// JobSets and Workloads count JobSets and quota Workloads by their state. NeedChange counts the JobSets that are not admitted until a user or an
	// administrator changes something, and HaveNotice those with a notice of their preemption.
	JobSets    map[JobSetState]int `json:"jobSets"`
	Workloads  map[State]int       `json:"workloads"`
	NeedChange int                 `json:"needChange"`
	HaveNotice int                 `json:"haveNotice"`
	// Users are the namespaces that hold most accelerators, and Hidden is what those hold together that the viewer does not see.
	Users  []UserAnswer `json:"users"`
	Hidden []Amount     `json:"hidden,omitempty"`
	// Waiting are the pending quota Workloads that wait longest.
	Waiting []OverviewRow `json:"waiting"`
	// Changes are the next ones that are known, and Overdue counts those whose time has passed.
	Changes []ChangeAnswer `json:"changes"`
	Overdue int            `json:"overdue,omitempty"`
}

// An AcceleratorAnswer is what quota Workloads hold of one accelerator of a flavor, at the times of the OverviewAnswer. A value is null before
// the accelerator was first observed.
type AcceleratorAnswer struct {
	Flavor   string              `json:"flavor"`
	Resource corev1.ResourceName `json:"resource"`
	// Quota is the nominal quota of all ClusterQueues and Cohorts.
	Quota []*float32 `json:"quota"`
	// InUse is what is held and not idle. Without all quota Workloads it is all that is held, and the others are missing.
	InUse []*float32 `json:"inUse"`
	// NotReady is admitted, and its pods are not all ready. AwaitsChecks waits for AdmissionChecks. LaterStages is kept for later stages. Evicting was
	// evicted, and its pods terminate.
	NotReady     []*float32 `json:"notReady,omitempty"`
	AwaitsChecks []*float32 `json:"awaitsChecks,omitempty"`
	LaterStages  []*float32 `json:"laterStages,omitempty"`
	Evicting     []*float32 `json:"evicting,omitempty"`
}

// A UserAnswer is a namespace with what its quota Workloads hold: accelerators come first.
type UserAnswer struct {
	Namespace string   `json:"namespace"`
	Held      []Amount `json:"held"`
	// Idle is the part that is admitted, and whose pods are not all ready.
	Idle []Amount `json:"idle,omitempty"`
}

// An OverviewRow is a quota Workload with its ClusterQueue.
type OverviewRow struct {
	WorkloadRow
	ClusterQueue string `json:"clusterQueue"`
}

// A ChangeAnswer is a change that is known before it happens.
type ChangeAnswer struct {
	// At is in seconds since 1970.
	At   int64      `json:"at"`
	Kind ChangeKind `json:"kind"`
	// Namespace, OwnerKind, Owner and Stage identify the stage, or what else the quota Workload Name is of.
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"`
	OwnerKind string `json:"ownerKind,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Stage     string `json:"stage,omitempty"`
	// Amounts are what it asks for if it starts, or else what it holds: accelerators come first.
	Amounts []Amount `json:"amounts,omitempty"`
	// ClusterQueue is where it asks for them or holds them.
	ClusterQueue string `json:"clusterQueue,omitempty"`
}

// SeesOverview reports whether the reader may see what sums up all ClusterQueues.
func (v *Viewer) SeesOverview() bool { return v.ClusterQueue == nil }

// HasClusterQueues reports whether a ClusterQueue was observed.
func (m *Model) HasClusterQueues() bool { return len(m.settled().byName) > 0 }

// Overview returns what sums up all ClusterQueues, if the viewer may see it.
func (m *Model) Overview(v Viewer, now time.Time) (OverviewAnswer, bool) {
	if !v.SeesOverview() {
		return OverviewAnswer{}, false
	}
	a := OverviewAnswer{IsPartial: m.isPartial, JobSets: m.jobSetTotals.present(), Workloads: map[State]int{}, Waiting: []OverviewRow{}, Changes: []ChangeAnswer{}}
	for _, q := range m.clusterQueues {
		for state, n := range q.counts {
			if n > 0 {
				a.Workloads[state] += n
			}
		}
	}
	a.NeedChange = m.jobSets.Rank(&jobSet{attention: attentionNotice})
	a.HaveNotice = m.jobSets.Rank(&jobSet{attention: attentionWaiting}) - a.NeedChange
	m.addAccelerators(&a, now)
	m.addUsers(&a, v)
	for visited, w := range m.waiting.From(0) {
		if visited == maxOverviewVisits || len(a.Waiting) == maxWaiting {
			break
		}
		if v.seesNamespace(w.key.Namespace) {
			a.Waiting = append(a.Waiting, m.overviewRow(v, w))
		}
	}
	m.addChanges(&a, v, now)
	return a, true
}

func (m *Model) overviewRow(v Viewer, w *workload) OverviewRow {
	row := OverviewRow{w.row(m, v), w.home}
	row.Message = shortened(row.Message)
	if !m.isPartial {
		row.Position = new(w.in.Rank(w))
	}
	return row
}

// addAccelerators adds the accelerators with most quota, in the order of their names.
func (m *Model) addAccelerators(a *OverviewAnswer, now time.Time) {
	h, uses := &m.history, m.acceleratorUses()
	shown := h.points(now)
	a.Times, a.Accelerators = []int64{}, []AcceleratorAnswer{}
	for i, t := range h.times {
		if shown[i] {
			a.Times = append(a.Times, t.Unix())
		}
	}
	a.Times = append(a.Times, now.Unix())
	most := slices.SortedFunc(maps.Keys(uses), func(x, y quota.FlavorResource) int {
		return cmp.Or(-cmp.Compare(uses[x][partQuota], uses[y][partQuota]), x.Compare(y))
	})
	a.OmittedAccelerators = max(0, len(most)-maxAccelerators)
	most = most[:len(most)-a.OmittedAccelerators]
	slices.SortFunc(most, quota.FlavorResource.Compare)
	for _, fr := range most {
		before := h.accelerators[fr]
		if before == nil {
			before = &acceleratorUse[[]float32]{}
		}
		values := func(part int) []*float32 { return pointsOf(before[part], shown, float32(uses[fr][part])) }
		one := AcceleratorAnswer{Flavor: string(fr.Flavor), Resource: fr.Resource, Quota: values(partQuota), InUse: values(partInUse)}
		if !m.isPartial {
			one.NotReady, one.AwaitsChecks, one.LaterStages, one.Evicting = values(partNotReady), values(partChecks), values(partLaterStages), values(partEvicting)
		}
		a.Accelerators = append(a.Accelerators, one)
	}
}

// points reports which samples an OverviewAnswer has: so many that are about equally far apart.
func (h *history) points(now time.Time) []bool {
	shown := make([]bool, len(h.times))
	if len(h.times) == 0 {
		return shown
	}
	apart := now.Sub(h.times[0]) / maxPoints
	var last time.Time
	for i, t := range h.times {
		if t.Sub(last) >= apart {
			shown[i], last = true, t
		}
	}
	return shown
}

// pointsOf returns the samples that are shown, and the current value. The last of the samples belong to the last of shown.
func pointsOf(samples []float32, shown []bool, current float32) []*float32 {
	var values []*float32
	missing := len(shown) - len(samples)
	for i, isShown := range shown {
		switch {
		case !isShown:
		case i < missing:
			values = append(values, nil)
		default:
			values = append(values, new(samples[i-missing]))
		}
	}
	return append(values, &current)
}

// addUsers adds the namespaces that hold most accelerators.
func (m *Model) addUsers(a *OverviewAnswer, v Viewer) {
	a.Users = []UserAnswer{}
	type user struct {
		name  string
		count float64
	}
	var users []user
	hidden := map[corev1.ResourceName]quota.Amount{}
	for name, n := range m.namespaces {
		u := user{name: name}
		for resource, amount := range n.held {
			if accelerator.IsAccelerator(resource) {
				u.count += units(resource, amount)
			}
		}
		switch {
		case u.count == 0:
		case v.seesNamespace(name):
			users = append(users, u)
		default:
			for resource, amount := range n.held {
				hidden[resource] = hidden[resource].Plus(amount)
			}
		}
	}
	slices.SortFunc(users, func(x, y user) int { return cmp.Or(cmp.Compare(y.count, x.count), cmp.Compare(x.name, y.name)) })
	for _, u := range users[:min(len(users), maxUsers)] {
		n := m.namespaces[u.name]
		a.Users = append(a.Users, UserAnswer{Namespace: u.name, Held: acceleratorsFirst(n.held), Idle: acceleratorsFirst(n.idle)})
	}
	a.Hidden = acceleratorsFirst(hidden)
}

// addChanges adds the next changes.
func (m *Model) addChanges(a *OverviewAnswer, v Viewer, now time.Time) {
	a.Overdue = m.changes.Rank(change{at: now.Unix()})
	for rank, c := range m.changes.From(a.Overdue) {
		if rank-a.Overdue == maxOverviewVisits || len(a.Changes) == maxChanges {
			break
		}
		if v.seesNamespace(c.key.Namespace) && (c.kind != ChangeStart || v.seesJobSets(c.key.Namespace)) {
			a.Changes = append(a.Changes, m.changeAnswer(c))
		}
	}
}

func (m *Model) changeAnswer(c change) ChangeAnswer {
	a := ChangeAnswer{At: c.at, Kind: c.kind, Namespace: c.key.Namespace}
	if js := m.jobSetsByKey[c.key]; c.kind == ChangeStart && js != nil {
		a.OwnerKind, a.Owner, a.Stage, a.ClusterQueue = "JobSet", c.key.Name, js.owner.expected.stage, m.clusterQueueOf(js)
		if w := js.owner.firstPending(); w != nil {
			a.Amounts = w.requests
		}
	} else if w := m.workloads[c.key]; c.kind != ChangeStart && w != nil {
		a.Name, a.OwnerKind, a.Owner, a.Stage, a.ClusterQueue = c.key.Name, w.ownerKind, w.ownerName, w.stage, w.home
		a.Amounts = amountsHeld(w.held)
	}
	a.Amounts = slices.Clone(a.Amounts)
	orderAccelerators(a.Amounts)
	return a
}
