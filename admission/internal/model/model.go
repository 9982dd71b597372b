package model

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/cohorts"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/notice"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/internal/timer"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// A Model is the state of an Engine. The packages that import it change it by its methods, or as their comments say.
type Model struct {
	Demand   *demand.Catalog
	Schedule Schedule
	Changes  Changes
	Config   settings.Config
	// Now is the time of the last call of Decide.
	Now time.Time
	// Tree has all charges; SafetyTree has the same limits, and is charged the claims in Bank.
	Tree, SafetyTree *quota.Tree
	Bank             *safety.Bank
	Meter            *fairshare.Meter
	Finder           *preempt.Finder
	// Decay is nil without admission fair sharing.
	Decay *fairshare.Decay
	// Transfers wait for the next call of Decide, as does the first account of each LocalQueue in Unopened.
	Transfers []Transfer
	Unopened  map[*LocalQueue]struct{}
	// Unready is the number of admitted stages whose pods are not ready.
	Unready int
	// Cycles counts the scheduling cycles, Checked the checks of stages, and ChargeEpoch how often a decision charged or reserved quota.
	Cycles, Checked, ChargeEpoch uint64
	// ChangedReservations are the ClusterQueues whose preemption reservations have changed since the comparison of nominees of this cycle read
	// them. It may also contain ClusterQueues of other cohort trees, and from before the cycle, which is harmless.
	ChangedReservations []*ClusterQueue
	Timers              timer.Set[Timed]
	// EntryEpoch counts the changes of entries.
	EntryEpoch uint64
	// UseChanged is called after the charges of a ClusterQueue with a due stage may have changed. WakeBeside wakes the stages of a ClusterQueue that wait
	// until enough of a flavor and resource is left beside its due stage. Package backfill sets both.
	UseChanged func(*ClusterQueue)
	WakeBeside func(*ClusterQueue, quota.ID)
	// Progressed is called, if it is set, after the progress of a JobSet may have changed.
	Progressed func(*JobSet)
	// Notices has the stages that have notice of their preemption.
	Notices notice.Board[*Stage]
	// RestoredPreemptors are those of stages that the Engine has seen for the first time, until the next cycle, and whether stages are leaving for them. It may
	// be nil.
	RestoredPreemptors map[types.UID]bool
	// Overdue are stages that may have to be evicted because their queue has been stopped.
	Overdue       map[*Stage]struct{}
	Checks        map[string]*version.Observed[queuespec.AdmissionCheck]
	Cohorts       *cohorts.Registry
	ClusterQueues map[string]*ClusterQueue
	LocalQueues   map[types.NamespacedName]*LocalQueue
	Namespaces    map[string]map[string]string
	JobSets       map[types.UID]*JobSet
	// UnreservedPeaks are the JobSets whose first option for a peak reservation is not reserved.
	UnreservedPeaks map[*JobSet]struct{}
	// Peaks counts the JobSets with a peak reservation.
	Peaks int
	// lastTopic is the last result of NewTopic.
	lastTopic         quota.ID
	Stages            map[decision.StageKey]*Stage
	CoAdmissionGroups map[string]*CoAdmissionGroup
	// Stuck are co-admission groups of which some members may have to release their quota.
	Stuck map[*CoAdmissionGroup]struct{}
	// InFlight has the decisions that have not been settled. LastDecision is the ID of the last one.
	LastDecision decision.ID
	InFlight     map[decision.ID]decision.StageKey
}

// New returns the Model of an Engine that has observed nothing.
func New(config settings.Config) (*Model, error) {
	if err := config.Complete(); err != nil {
		return nil, err
	}
	tree := quota.NewTree()
	safetyTree := tree.Twin()
	var decay *fairshare.Decay
	if config.AdmissionFairSharing != nil {
		decay = fairshare.NewDecay(tree.Index, *config.AdmissionFairSharing)
	}
	finder := preempt.NewFinder(tree, config.Strategies()...)
	finder.LeastWork = config.LeastWork
	return &Model{
		Config:            config,
		Tree:              tree,
		SafetyTree:        safetyTree,
		Bank:              safety.NewBank(safetyTree),
		Demand:            demand.NewCatalog(config.Charges, config.Devices),
		Schedule:          Schedule{IsStale: true},
		Changes:           Changes{ChangedCohorts: map[string]struct{}{}},
		lastTopic:         FewerAhead,
		Meter:             fairshare.NewMeter(tree),
		Finder:            finder,
		Decay:             decay,
		Unopened:          map[*LocalQueue]struct{}{},
		Checks:            map[string]*version.Observed[queuespec.AdmissionCheck]{},
		Cohorts:           cohorts.New(tree, safetyTree),
		Overdue:           map[*Stage]struct{}{},
		ClusterQueues:     map[string]*ClusterQueue{},
		LocalQueues:       map[types.NamespacedName]*LocalQueue{},
		Namespaces:        map[string]map[string]string{},
		JobSets:           map[types.UID]*JobSet{},
		UnreservedPeaks:   map[*JobSet]struct{}{},
		Stages:            map[decision.StageKey]*Stage{},
		CoAdmissionGroups: map[string]*CoAdmissionGroup{},
		Stuck:             map[*CoAdmissionGroup]struct{}{},
		InFlight:          map[decision.ID]decision.StageKey{},
	}, nil
}
