package auditlog_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/shadow/auditlog"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/kueueday"
)

var begin = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// day has a pipeline that prepares on 1 GPU for 10 minutes and trains on 3 for 20.
func day() *kueueday.Day {
	return &kueueday.Day{Begin: begin, GPUs: 4, Jobs: []kueueday.Job{{Name: "a", Stages: []kueueday.Stage{
		{Name: "prepare", Pods: 1, Run: 10 * time.Minute}, {Name: "train", Pods: 3, Run: 20 * time.Minute},
	}}}}
}

// lines returns the events of the day that a filter keeps.
func lines(t *testing.T, level string, keep func(line string) bool) string {
	t.Helper()
	var log, kept bytes.Buffer
	if err := day().AuditLog(&log, level); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log.String()) {
		if keep(line) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func read(t *testing.T, log string) (*shadow.Report, []snapshot.Gap) {
	t.Helper()
	content, err := auditlog.Read("audit.log", strings.NewReader(log), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := content.Recorder.Report(content.To, content.Gaps)
	if err != nil {
		t.Fatal(err)
	}
	return got, content.Gaps
}

// TestDeletion deletes the JobSet while it trains, by an event that only names it, and then what belongs to it.
func TestDeletion(t *testing.T) {
	log := lines(t, "RequestResponse", func(line string) bool {
		return !strings.Contains(line, `"name":"a-train-0"`) && !strings.Contains(line, `"type":"Completed"`) && !strings.Contains(line, `"type":"Finished"`)
	})
	deletion := func(group, version, resource, name string, after time.Duration) string {
		return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","stage":"ResponseComplete","verb":"delete","objectRef":{"resource":%q,`+
			`"namespace":"team","name":%q,"apiGroup":%q,"apiVersion":%q},"responseStatus":{"code":200},"responseObject":{"kind":"Status","apiVersion":"v1"},"stageTimestamp":%q}`+"\n",
			resource, name, group, version, begin.Add(after).Format("2006-01-02T15:04:05.000000Z"))
	}
	log += deletion("jobset.x-k8s.io", "v1alpha2", "jobsets", "a", 40*time.Minute) + deletion("kueue.x-k8s.io", "v1beta2", "workloads", "jobset-a-a1b2c", 41*time.Minute) +
		deletion("kueue.x-k8s.io", "v1beta2", "workloads", "another", 50*time.Minute)
	got, _ := read(t, log)
	if got.JobSets != (shadow.Counts{Total: 1, Staged: 1, Finished: 1}) || !got.To.Equal(begin.Add(50*time.Minute)) {
		t.Errorf("%+v until %s", got.JobSets, got.To)
	}
	// 3 GPUs are held from the begin to the end of the Workload, and one until its Job succeeded.
	if held := got.Resources[0].Held; held != 3*41*60+10*60 {
		t.Errorf("%g GPU-seconds held", held)
	}
}

// TestLevels reads a log that has no objects of Workloads: what is held comes from Jobs.
func TestLevels(t *testing.T) {
	isOfWorkload := func(line string) bool { return strings.Contains(line, `"resource":"workloads"`) }
	log := lines(t, "RequestResponse", func(line string) bool { return !isOfWorkload(line) }) + lines(t, "Metadata", isOfWorkload)
	got, gaps := read(t, log)
	want := []snapshot.Gap{{
		Resource: "workloads.kueue.x-k8s.io", Reason: "5 of 5 events have no object: their level is Metadata", Cure: "log them at level RequestResponse",
	}}
	if diff := cmp.Diff(want, gaps); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if held := got.Resources[0].Held; held != 10*60+3*20*60 {
		t.Errorf("%g GPU-seconds held", held)
	}
}

// TestOtherEvents ignores events of other resources, stages and versions, and of requests that failed.
func TestOtherEvents(t *testing.T) {
	log := lines(t, "RequestResponse", func(string) bool { return true })
	first, _, _ := strings.Cut(log[strings.Index(log, `{"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiGroup":"jobset`):], "\n")
	for _, change := range [][2]string{
		{`"stage":"ResponseComplete"`, `"stage":"RequestReceived"`},
		{`"code":200`, `"code":409`},
		{`"apiVersion":"v1alpha2"`, `"apiVersion":"v1alpha1"`},
		{`"resource":"jobsets"`, `"resource":"pods"`},
		{`"verb":"create"`, `"verb":"watch"`},
	} {
		changed := strings.Replace(strings.ReplaceAll(first, `"name":"a"`, `"name":"b"`), change[0], change[1], 1)
		if changed == first || !strings.Contains(changed, change[1]) {
			t.Fatalf("%s is not in %s", change[0], first)
		}
		changed = strings.ReplaceAll(changed, "jobset-a", "jobset-b")
		if got, _ := read(t, log+changed+"\n"); got.JobSets.Total != 1 {
			t.Errorf("with %s there are %d JobSets", change[1], got.JobSets.Total)
		}
	}
}

func TestPolicyIsYAML(t *testing.T) {
	var policy map[string]any
	if err := yaml.UnmarshalStrict([]byte(auditlog.Policy), &policy); err != nil || policy["kind"] != "Policy" {
		t.Errorf("%v, %v", policy, err)
	}
}
