package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// labQueues returns the queues of the lab for a replay, and the default configuration with times in the scale of the replay.
func labQueues() *snapshot.Snapshot {
	s := lab.Queues()
	s.Configuration = &configapi.Configuration{}
	s.Configuration.SetDefaults()
	s.Configuration.CoStart.ReserveFor.Duration *= scale
	return s
}

// labArrivals returns the JobSets of the lab for a replay, with pods that load and run as the fake kubelet lets them.
func labArrivals(seed uint64, count int) []*replay.Arrival {
	var all []*replay.Arrival
	for _, s := range lab.Draw(seed, count) {
		lab.Queued(s.JobSet)
		a := s.Arrival()
		a.At = mixed.Begin().Add(scale * s.After).Truncate(time.Second)
		a.JobSet.UID, a.JobSet.CreationTimestamp = types.UID(a.JobSet.Name), metav1.NewTime(a.At)
		for job, course := range a.Jobs {
			course.Ready, course.Run = scale*course.Ready, scale*course.Run
			a.Jobs[job] = course
		}
		all = append(all, a)
	}
	return all
}

// The second table in docs/comparison.md is a replay of the JobSets of the first one.
func TestPoliciesInDocs(t *testing.T) {
	var variants []trace.Variant
	for _, policy := range []struct{ name, title string }{
		{"Whole+NoReservation", "whole"}, {"Staged+NoCoStart+NoReservation", "staged, without co-start"}, {"Staged", "staged"},
	} {
		v, err := trace.ParseVariant(policy.name)
		if err != nil {
			t.Fatal(err)
		}
		v.Name = policy.title
		variants = append(variants, v)
	}
	report, err := trace.Replay(labArrivals(1, 24), labQueues(), lab.GPU, variants...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range report.Policies {
		if p := &report.Policies[i]; p.Finished != report.Jobs {
			t.Errorf("%s: %d of %d JobSets have finished", p.Policy, p.Finished, report.Jobs)
		}
	}
	checkDocument(t, "comparison.md", replaced(t, "policies", policyTable(report)))
}

// policyTable renders a replay as a table in Markdown, in seconds of the run.
func policyTable(report *trace.Report) string {
	var out strings.Builder
	out.WriteString("| policy | makespan | GPU-seconds held | idle | not ready | waits for stage | not running |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for i := range report.Policies {
		p := &report.Policies[i]
		fmt.Fprintf(&out, "| %s | %.1f s | %.0f |", p.Policy, p.MakespanSeconds/scale, p.HeldSeconds/scale)
		for _, idle := range []float64{p.IdleSeconds.Sum(), p.IdleSeconds.NotReady, p.IdleSeconds.WaitsForStage, p.IdleSeconds.NotRunning} {
			fmt.Fprintf(&out, " %.1f %% |", 100*idle/p.HeldSeconds)
		}
		out.WriteString("\n")
	}
	return out.String()
}
