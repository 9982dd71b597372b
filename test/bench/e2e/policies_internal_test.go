package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
	"github.com/tranche-dev/tranche/test/bench/mixed"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// labQueues returns the queues of the lab for a replay, and the default configuration with times in the scale of the replay.
func labQueues(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	config := &configapi.Configuration{}
	config.SetDefaults()
	config.CoStart.ReserveFor.Duration *= scale
	after, err := time.ParseDuration(config.Reservation.After)
	if err != nil {
		t.Fatal(err)
	}
	config.Reservation.After = (scale * after).String()
	s := &snapshot.Snapshot{Configuration: config}
	for _, object := range lab.Queues() {
		object.SetUID(types.UID(object.GetNamespace() + "/" + object.GetName()))
		switch o := object.(type) {
		case *kueue.ResourceFlavor:
			s.ResourceFlavors = append(s.ResourceFlavors, o)
		case *corev1.Namespace:
			s.Namespaces = append(s.Namespaces, o)
		case *kueue.ClusterQueue:
			s.ClusterQueues = append(s.ClusterQueues, o)
		case *kueue.LocalQueue:
			s.LocalQueues = append(s.LocalQueues, o)
		default:
			t.Fatalf("a replay has no %T", o)
		}
	}
	return s
}

// labArrivals returns the JobSets of the lab for a replay, with pods that load and run as the fake kubelet lets them.
func labArrivals(t *testing.T, seed uint64, count int) []*replay.Arrival {
	t.Helper()
	var all []*replay.Arrival
	for _, s := range lab.Draw(seed, count) {
		js := s.JobSet
		lab.Queued(js)
		a := &replay.Arrival{At: mixed.Begin().Add(scale * s.After).Truncate(time.Second), JobSet: js, Jobs: map[replay.Job]replay.Course{}}
		js.UID, js.CreationTimestamp = types.UID(js.Name), metav1.NewTime(a.At)
		for i := range js.Spec.ReplicatedJobs {
			pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template
			takes := func(annotation string) time.Duration {
				d, err := time.ParseDuration(pod.Annotations[annotation])
				if err != nil {
					t.Fatal(err)
				}
				return scale * d
			}
			loads, runs := takes(controlplane.FakeReadyAfter), takes(controlplane.FakeRunTime)
			a.Jobs[replay.Job{ReplicatedJob: js.Spec.ReplicatedJobs[i].Name}] = replay.Course{
				Ready: loads, GetsReady: true, Run: loads + runs, Ends: pod.Annotations[controlplane.FakeExit] != controlplane.FakeExitNever,
			}
		}
		all = append(all, a)
	}
	return all
}

// The second table in docs/comparison.md is a replay of the JobSets of the first one.
func TestPoliciesInDocs(t *testing.T) {
	var variants []trace.Variant
	for _, policy := range []struct{ name, title string }{
		{"Whole+NoReservation", "whole"}, {"Staged+NoCoStart+NoReservation", "staged, without co-start and reservations"}, {"Staged", "staged"},
	} {
		v, err := trace.ParseVariant(policy.name)
		if err != nil {
			t.Fatal(err)
		}
		v.Name = policy.title
		variants = append(variants, v)
	}
	report, err := trace.Replay(labArrivals(t, 1, 24), labQueues(t), lab.GPU, variants...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range report.Policies {
		if p := &report.Policies[i]; p.Finished != report.Jobs {
			t.Errorf("%s: %d of %d JobSets have finished", p.Policy, p.Finished, report.Jobs)
		}
	}
	const begin, end = "<!-- begin of the policies -->\n", "<!-- end of the policies -->\n"
	path := filepath.Join("..", "..", "..", "docs", "comparison.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatal("docs/comparison.md has no place for the table of policies")
	}
	want := before + begin + policyTable(report) + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("docs/comparison.md differs from the replay; -update rewrites it: -want +got\n%s", diff)
	}
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
