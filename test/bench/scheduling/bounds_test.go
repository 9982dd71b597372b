package scheduling_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/simulator/trace"
)

// A bound is how large a figure of a policy may be, or its ratio to that of another policy.
type bound struct {
	Figure string   `json:"figure"`
	Policy string   `json:"policy"`
	Than   string   `json:"than,omitempty"`
	Least  *float64 `json:"least,omitempty"`
	Most   *float64 `json:"most,omitempty"`
}

type bounds []bound

func readBounds(t *testing.T) bounds {
	t.Helper()
	data, err := os.ReadFile("bounds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Bounds bounds `json:"bounds"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Bounds
}

// figures are those that can have bounds.
func figures(p *trace.Policy) map[string]float64 {
	largest := &p.Sizes[len(p.Sizes)-1]
	return map[string]float64{
		"makespan": p.MakespanSeconds, "held": p.WhileSubmitted.Held, "used": p.WhileSubmitted.Used,
		"idle": p.IdleSeconds.Sum() / p.HeldSeconds, "waits-for-stage": p.IdleSeconds.WaitsForStage / p.HeldSeconds,
		"largest/wait/mean": largest.WaitAll.Mean, "largest/wait/p99": largest.WaitAll.P99, "largest/wait/max": largest.WaitAll.Max,
	}
}

// breaches describes the bounds that a report exceeds, and those that name a figure or a policy that does not exist.
func (b bounds) breaches(r *trace.Report) []string {
	var all []string
	for i := range b {
		value, err := b[i].value(r)
		switch {
		case err != nil:
			all = append(all, err.Error())
		case b[i].Most != nil && value > *b[i].Most, b[i].Least != nil && value < *b[i].Least:
			all = append(all, fmt.Sprintf("%s of %s is %.3f", b[i].Figure, b[i].subject(), value))
		}
	}
	return all
}

func (b *bound) subject() string {
	if b.Than == "" {
		return b.Policy
	}
	return b.Policy + " by " + b.Than
}

// value returns what is bounded. Bounds name policies as --policy does.
func (b *bound) value(r *trace.Report) (float64, error) {
	of := func(name string) (float64, error) {
		i := slices.IndexFunc(policies(), func(p policy) bool { return p.name == name })
		if i < 0 {
			return 0, fmt.Errorf("%s: there is no policy %s", b.Figure, name)
		}
		value, exists := figures(&r.Policies[i])[b.Figure]
		if !exists {
			return 0, fmt.Errorf("there is no figure %s", b.Figure)
		}
		return value, nil
	}
	value, err := of(b.Policy)
	if err != nil || b.Than == "" {
		return value, err
	}
	other, err := of(b.Than)
	return value / other, err
}

func TestBreaches(t *testing.T) {
	report := &trace.Report{}
	for _, makespan := range []float64{100, 90, 80, 85, 120} {
		report.Policies = append(report.Policies, trace.Policy{MakespanSeconds: makespan, HeldSeconds: 1, Sizes: []trace.Size{{}}})
	}
	limit := func(value float64) *float64 { return &value }
	b := bounds{
		{Figure: "makespan", Policy: "Staged+NoReservation", Than: "Whole+NoReservation", Most: limit(0.8), Least: limit(0.8)},
		{Figure: "makespan", Policy: "Staged+NoReservation", Than: "Whole+NoReservation", Most: limit(0.79)},
		{Figure: "makespan", Policy: "Staged+StrictFIFO", Than: "Whole+NoReservation", Least: limit(1.3)},
		{Figure: "makespan", Policy: "Staged+NoReservation", Most: limit(79)},
		{Figure: "makespan", Policy: "Stagged"},
		{Figure: "span", Policy: "Staged+NoReservation"},
	}
	want := []string{
		"makespan of Staged+NoReservation by Whole+NoReservation is 0.800", "makespan of Staged+StrictFIFO by Whole+NoReservation is 1.200", "makespan of Staged+NoReservation is 80.000",
		"makespan: there is no policy Stagged", "there is no figure span",
	}
	if diff := cmp.Diff(want, b.breaches(report)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
