package trace

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Variant is a way in which the jobs of a trace are admitted: in stages or as a whole, with the queues as they are or with some settings changed.
type Variant struct {
	// Name is that in the report. ParseVariant reads it.
	Name   string
	Policy replay.Policy
	// Change changes copies of the ClusterQueues and of the configuration. It may be nil.
	Change func(*snapshot.Snapshot)
}

// A setting is what a Variant can change.
type setting struct {
	name string
	// field is what is set: a Variant can have one setting of each field.
	field string
	// isOfStages is true if the setting does not change how JobSets are admitted that have one stage.
	isOfStages bool
	change     func(*snapshot.Snapshot)
}

// settings returns those that a Variant can have.
func settings() []setting {
	var all []setting
	for _, strategy := range []kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO} {
		all = append(all, setting{name: string(strategy), field: "queueing strategy", change: func(s *snapshot.Snapshot) {
			for _, q := range s.ClusterQueues {
				q.Spec.QueueingStrategy = strategy
			}
		}})
	}
	for _, policy := range []configapi.StageAdmission{configapi.StageAdmissionSafe, configapi.StageAdmissionReserve, configapi.StageAdmissionGreedy} {
		all = append(all, setting{name: string(policy), field: "stage admission", isOfStages: true, change: func(s *snapshot.Snapshot) {
			s.Configuration.StageAdmission = policy
			for _, q := range s.ClusterQueues {
				delete(q.Annotations, apis.StageAdmissionAnnotation)
			}
		}})
	}
	for _, name := range []string{coStart, noCoStart} {
		all = append(all, setting{name: name, field: "setting of co-start", isOfStages: true, change: func(s *snapshot.Snapshot) {
			s.Configuration.CoStart.Enable = new(name == coStart)
			for _, q := range s.ClusterQueues {
				delete(q.Annotations, apis.CoStartAnnotation)
			}
		}})
	}
	reserve := func(name, after string) setting {
		return setting{name: name, field: "setting of reservations", change: func(s *snapshot.Snapshot) { replay.SetReservations(s, after) }}
	}
	return append(all, reserve(reservation, reservationAfter), reserve(noReservation, apis.Never))
}

// The settings of co-start, and of reservations for stages that have waited for long.
const (
	coStart, noCoStart         = "CoStart", "NoCoStart"
	reservation, noReservation = "Reservation", "NoReservation"
	reservationAfter           = "10m"
)

// Policies returns the names of the policies that Variants can have.
func Policies() []string { return []string{string(replay.Whole), string(replay.Staged)} }

// Settings returns the names of the settings that Variants can have.
func Settings() []string {
	var names []string
	for _, s := range settings() {
		names = append(names, s.name)
	}
	return names
}

// ParseVariant reads a policy, and settings after plus signs: Staged+StrictFIFO+Greedy. Settings that it does not name are those of the queues and the
// configuration.
func ParseVariant(name string) (Variant, error) {
	words := strings.Split(name, "+")
	v := Variant{Name: name, Policy: replay.Policy(words[0])}
	if !slices.Contains(Policies(), words[0]) {
		return v, fmt.Errorf("%q must begin with one of %s", name, strings.Join(Policies(), ", "))
	}
	known, fields := settings(), map[string]string{}
	var changes []func(*snapshot.Snapshot)
	for _, word := range words[1:] {
		i := slices.IndexFunc(known, func(s setting) bool { return s.name == word })
		if i < 0 {
			return v, fmt.Errorf("%q: there is no setting %q: the settings are %s", name, word, strings.Join(Settings(), ", "))
		}
		s := &known[i]
		switch other, twice := fields[s.field]; {
		case twice:
			return v, fmt.Errorf("%q: %s and %s are both a %s: leave one out", name, other, word, s.field)
		case s.isOfStages && v.Policy == replay.Whole:
			return v, fmt.Errorf("%q: %s is about stages, and %s has none: leave it out", name, word, replay.Whole)
		}
		fields[s.field] = word
		changes = append(changes, s.change)
	}
	v.Change = func(s *snapshot.Snapshot) {
		for _, change := range changes {
			change(s)
		}
	}
	return v, nil
}

// queues returns a copy of queues with the settings of the Variant.
func (v *Variant) queues(s *snapshot.Snapshot) *snapshot.Snapshot {
	changed := *s
	if changed.Configuration = s.Configuration.DeepCopy(); changed.Configuration == nil {
		changed.Configuration = &configapi.Configuration{}
	}
	changed.ClusterQueues = nil
	for _, q := range s.ClusterQueues {
		changed.ClusterQueues = append(changed.ClusterQueues, q.DeepCopy())
	}
	if v.Change != nil {
		v.Change(&changed)
	}
	return &changed
}
