package expected_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

const queues = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: v1
kind: Namespace
metadata: {name: ml, labels: {kubernetes.io/metadata.name: ml}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus}
spec:
  queueingStrategy: BestEffortFIFO
  namespaceSelector: {}
  resourceGroups:
  - {coveredResources: [cpu], flavors: [{name: h100, resources: [{name: cpu, nominalQuota: 4}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {namespace: ml, name: main}
spec: {clusterQueue: gpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: ml, name: runs, uid: u1, resourceVersion: "1", creationTimestamp: "2026-01-01T10:00:00Z"}
spec:
  active: true
  queueName: main
  maximumExecutionTimeSeconds: 7200
  podSets: [{name: main, count: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
status:
  admission: {clusterQueue: gpus, podSetAssignments: [{name: main, count: 3, flavors: {cpu: h100}, resourceUsage: {cpu: 3}}]}
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-01-01T10:00:00Z"}
  - {type: Admitted, status: "True", reason: Admitted, message: "", lastTransitionTime: "2026-01-01T10:00:00Z"}
---
`

func pending(name, created, limit string) string {
	return `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: ml, name: ` + name + `, uid: ` + name + `, resourceVersion: "1", creationTimestamp: "` + created + `"}
spec:
  active: true
  queueName: main` + limit + `
  podSets: [{name: main, count: 4, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
---
`
}

// TestWrite prints a start that follows from a limit, one that has no limit and so makes the next one unknown, and the filters.
func TestWrite(t *testing.T) {
	text := queues + pending("first", "2026-01-01T10:10:00Z", "\n  maximumExecutionTimeSeconds: 3600") +
		pending("endless", "2026-01-01T10:20:00Z", "") + pending("last", "2026-01-01T10:30:00Z", "")
	table := []string{
		"NAMESPACE  NAME     OWNER  STAGE  EXPECTED-START",
		"ml         first    -      -      by 2026-01-01 12:00:00Z (60m after the snapshot)",
		"ml         endless  -      -      by 2026-01-01 13:00:00Z (120m after the snapshot)",
		"ml         last     -      -      unknown: no maximum execution time: Workload ml/endless",
	}
	none := []string{"No pending quota Workloads."}
	for name, c := range map[string]struct {
		filter expected.Filter
		want   []string
	}{
		"all":                     {expected.Filter{}, table},
		"of the queues":           {expected.Filter{Namespace: "ml", LocalQueue: "main"}, table},
		"of the ClusterQueue":     {expected.Filter{ClusterQueue: "gpus"}, table},
		"of another namespace":    {expected.Filter{Namespace: "other"}, none},
		"of another LocalQueue":   {expected.Filter{LocalQueue: "other"}, none},
		"of another ClusterQueue": {expected.Filter{ClusterQueue: "other"}, none},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := snapshot.ReadStream("queues", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			s.TakenAt = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
			var out, warnings bytes.Buffer
			list, err := expected.NewList(&warnings, s, c.filter, 24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if err := list.Write(&out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" || warnings.Len() > 0 {
				t.Errorf("-want +got\n%s%s", diff, warnings.String())
			}
		})
	}
}

// TestInterrupted: a start that was not determined is not one after the end of the simulation.
func TestInterrupted(t *testing.T) {
	p := &simulator.Prediction{Until: time.Unix(3600, 0), Interrupted: errors.New("the simulation was stopped after 7 decisions")}
	want := "not predicted: the simulation was stopped after 7 decisions"
	if got := expected.Of(&simulator.Start{}, p).Text; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	known := expected.Of(&simulator.Start{By: time.Unix(60, 0)}, p).Text
	if !strings.HasPrefix(known, "by 1970-01-01 00:01:00Z") {
		t.Errorf("a known start is %q", known)
	}
}

func TestListRefusesHorizon(t *testing.T) {
	_, err := expected.NewList(nil, &snapshot.Snapshot{}, expected.Filter{}, -time.Hour)
	if err == nil || err.Error() != "the horizon is -1h0m0s, must be positive" {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	s, err := snapshot.ReadStream("queues", strings.NewReader(queues+pending("first", "2026-01-01T10:10:00Z", "")))
	if err != nil {
		t.Fatal(err)
	}
	for want, filter := range map[string]expected.Filter{
		"": {Namespace: "ml", LocalQueue: "main", ClusterQueue: "gpus"},
		`the snapshot has no namespace "x": correct the name, or take a snapshot that has it`:                    {Namespace: "x"},
		`the snapshot has no LocalQueue "x" in namespace "ml": correct the name, or take a snapshot that has it`: {Namespace: "ml", LocalQueue: "x"},
		`the snapshot has no LocalQueue "x": correct the name, or take a snapshot that has it`:                   {LocalQueue: "x"},
		`the snapshot has no ClusterQueue "x": correct the name, or take a snapshot that has it`:                 {ClusterQueue: "x"},
	} {
		got := ""
		if err := filter.Validate(s); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: the error is %q, want %q", filter, got, want)
		}
	}
}

// TestNow predicts the same start from two snapshots, the second one a minute later: the text stays the same.
func TestNow(t *testing.T) {
	s, err := snapshot.ReadStream("queues", strings.NewReader(queues+pending("first", "2026-01-01T10:10:00Z", "")))
	if err != nil {
		t.Fatal(err)
	}
	for minute := range 2 {
		s.TakenAt = time.Date(2026, 1, 1, 11, minute, 0, 0, time.UTC)
		p, err := simulator.Forecast(s, &simulator.Durations{}, s.TakenAt.Add(24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if text := expected.Now(&p.Starts[0], p).Text; text != "by 2026-01-01 12:00:00Z" {
			t.Errorf("after %d minutes: %s", minute, text)
		}
	}
}
