package trace_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// Two pipelines on 4 GPUs: as a whole, the second one waits until the first one has prepared and trained. In stages it prepares meanwhile.
func TestReplay(t *testing.T) {
	arrivals := read(t, `# the columns may come in any order
queue,submit,name,stages,run
main,0,a,prepare(nvidia.com/gpu=1)=Succeeded=>train(3*nvidia.com/gpu=1),"prepare:10m,train:20m"
main,1m,b,prepare(nvidia.com/gpu=1)=Succeeded=>train(3*nvidia.com/gpu=1),"prepare:600,train:20m"
main,2m,large,nvidia.com/gpu=5,1h
main,180,small,nvidia.com/gpu=1,1m
`)
	queues, err := trace.Assume(arrivals, corev1.ResourceList{gpu: resource.MustParse("4")})
	if err != nil {
		t.Fatal(err)
	}
	report, err := trace.Replay(arrivals, queues, "", variants(t, "Whole", "Staged")...)
	if err != nil {
		t.Fatal(err)
	}
	if report.Jobs != 4 || report.SubmitSeconds != 180 || report.Resource != gpu || report.Quota != 4 {
		t.Errorf("%+v", report)
	}
	type times struct{ started, finished float64 }
	for i, want := range []map[string]times{
		{"a": {0, 1800}, "small": {600, 660}, "b": {1800, 3600}, "large": {-1, -1}},
		{"a": {0, 1800}, "b": {60, 3000}, "small": {180, 240}, "large": {-1, -1}},
	} {
		p, got := report.Policies[i], map[string]times{}
		for _, r := range p.Results {
			got[r.Name] = times{r.Started, r.Finished}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(times{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", p.Policy, diff)
		}
		if p.Finished != 3 || p.Pending != 1 || p.Stopped != 0 || p.Evictions != 0 {
			t.Errorf("%s: %+v", p.Policy, p)
		}
	}
	staged := report.Policies[1]
	// 2 pipelines with 10 GPU-minutes and 60 GPU-minutes each, and one minute.
	if want := 141.0 * 60; staged.HeldSeconds != want || staged.MakespanSeconds != 3000 || staged.Utilization != want/(4*3000) {
		t.Errorf("held %v, makespan %v, utilization %v", staged.HeldSeconds, staged.MakespanSeconds, staged.Utilization)
	}
	var sizes []string
	for i := range staged.Sizes {
		sizes = append(sizes, staged.Sizes[i].String())
	}
	if diff := cmp.Diff([]string{"1", "2 to 4", "5 to 16"}, sizes); diff != "" {
		t.Error(diff)
	}
	// a is not slowed down; b ends after 2,940 seconds instead of 1,800.
	if s := staged.Sizes[1].Slowdown; s.P50 != 1 || s.Max != 2940.0/1800 || s.P99 != s.Max || s.Mean != (1+2940.0/1800)/2 {
		t.Errorf("slowdown: %+v", s)
	}
	if why := staged.Results[2].Why; !strings.Contains(why, "has not enough quota") {
		t.Errorf("large never starts because %q", why)
	}
}

// A job that exceeds its limit is stopped, and one without a queue waits forever.
func TestReplayOfJobsThatDoNotFinish(t *testing.T) {
	arrivals := read(t, "submit,queue,namespace,stages,run,limit\n0,main,team,nvidia.com/gpu=1,2h,1h\n2026s,main,team,nvidia.com/gpu=1,10m,1h\n3000,nowhere,team,nvidia.com/gpu=1,1h,\n")
	queues, err := trace.Assume(arrivals[:2], corev1.ResourceList{gpu: resource.MustParse("1")})
	if err != nil {
		t.Fatal(err)
	}
	report, err := trace.Replay(arrivals, queues, gpu, variants(t, "Staged")...)
	if err != nil {
		t.Fatal(err)
	}
	p := report.Policies[0]
	if p.Finished != 1 || p.Stopped != 1 || p.Pending != 1 || p.Results[1].Started != 3600 || p.MakespanSeconds != 4200 {
		t.Errorf("%+v", p)
	}
	if want := "LocalQueue team/nowhere does not exist"; p.Results[2].Why != want {
		t.Errorf("%q, want %q", p.Results[2].Why, want)
	}
}

func TestBadTraces(t *testing.T) {
	const columns = "submit,queue,stages,run,limit\n"
	for text, want := range map[string]string{
		"":                               "the trace is empty",
		columns:                          "the trace has no jobs",
		"submit,queue,run\n0,q,1\n":      "no column stages",
		"submit,queue,stages,run,user\n": `unknown column "user": the columns are submit, queue,`,
		"submit,queue,stages,run,run\n":  "has the column run twice",
		columns + "x,q,gpu=1,1,\n":       `line 2: column submit: "x" must be seconds`,
		columns + "0,q,gpu=1,1,\n2026-11-02T08:00:00Z,q,gpu=1,1,\n":    "is a point in time, and earlier lines have durations",
		columns + "2026-11-02T08:00:00Z,q,gpu=1,1,\n0,q,gpu=1,1,\n":    "is a duration, and earlier lines have points in time",
		columns + "0,q,gpu=1,1,\n1000000000,q,gpu=1,1,\n":              "line 3: column submit: more than 20 years",
		columns + "-1,q,gpu=1,1,\n":                                    `"-1" must be seconds`,
		columns + "0,,gpu=1,1,\n":                                      "column queue is empty",
		columns + "0,q,,1,\n":                                          "column stages is empty",
		columns + "0,q,gpu=1,,\n":                                      "column run is empty",
		columns + "0,q,gpu=1,soon,\n":                                  `column run: "soon" must be seconds`,
		columns + "0,q,gpu=1,1,never\n":                                `column limit: "never" must be seconds`,
		columns + "0,q q,gpu=1,1,\n":                                   "must have no blanks",
		columns + "0,q,gpu,1,\n":                                       `"gpu" is no request`,
		columns + "0,q,a(gpu=1)=Ready=>b(gpu=1),a:1,\n":                "nothing is said about b: write a:1,b:30m",
		columns + "0,q,a(gpu=1),b:1,\n":                                `no ReplicatedJob "b"`,
		columns + "0,q,gpu=1,1\n":                                      "record on line 2: wrong number of fields",
		"submit,queue,stages,run,name\n0,q,gpu=1,1,a\n0,q,gpu=1,1,a\n": `line 3: column name: "a" is also the name in line 2`,
		columns + strings.Repeat("0,q,gpu,1,\n", 30):                   "and 20 more wrong lines",
	} {
		if _, err := trace.Read(strings.NewReader(text), "default"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", text, err, want)
		}
	}
	if _, err := trace.Assume(nil, nil); err == nil {
		t.Error("a trace without queues")
	}
}

func TestFromSlurm(t *testing.T) {
	text := `JobID|Submit|ElapsedRaw|TimelimitRaw|AllocTRES|ReqTRES|Partition
12_3|2026-11-02T08:01:00|3600|120|billing=8,cpu=64,gres/gpu=16,gres/gpu:a100=16,mem=100G,node=2|cpu=1|GPU,batch
11|2026-11-02T08:00:00|7260|120||cpu=3,mem=4000M,node=1|batch
10.batch|2026-11-02T08:00:00|60|120|cpu=1|cpu=1|batch
9|2026-11-02T07:00:00|0|120||cpu=1|batch
8|2026-11-02T09:00:00|5|UNLIMITED||billing=1|batch
7|2026-11-02T09:00:00|5|Partition_Limit|cpu=1||
6|2026-11-02T09:00:00|5|Partition_Limit|cpu=1||batch
`
	want := `submit,queue,stages,run,name,namespace,ready,limit,class
0,batch,"1*cpu=3,memory=4000Mi",7260,job-11,default,,7261,
60,gpu,"2*cpu=32,memory=51200Mi,nvidia.com/gpu=8",3600,job-12-3,default,,7200,
3600,batch,1*cpu=1,5,job-6,default,,,
`
	converted, err := trace.FromSlurm(strings.NewReader(text), &trace.Conversion{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	expectTrace(t, converted, want, map[string]int{
		"never ran": 1, "ask for nothing": 1, "are steps of other jobs": 1, "have no partition: name a queue for all jobs": 1,
	})
	const header = "JobID|Submit|ElapsedRaw|ReqTRES|Partition\n"
	for text, want := range map[string]string{
		"": "no field JobID", "JobID|Submit|ElapsedRaw\n": "no field AllocTRES: run sacct",
		header: "no jobs that ran", header + "1|soon|5|cpu=1|b\n": `line 2: field Submit is "soon"`, header + "1|2026-11-02T09:00:00|5m|cpu=1|b\n": `field ElapsedRaw is "5m"`,
		header + "1|2026-11-02T09:00:00|5|cpu=many|b\n": `"cpu=many" of "cpu=many": it must be a number`,
	} {
		if _, err := trace.FromSlurm(strings.NewReader(text), &trace.Conversion{Namespace: "default"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", text, err, want)
		}
	}
}

func TestFromSWF(t *testing.T) {
	text := `; UnixStartTime: 0
1 100 5 3600 8 -1 -1 8 7200 -1 1 1 1 1 2 1 -1 -1
2  50 5 60 -1 -1 -1 4 -1 -1 1 1 1 1 -1 1 -1 -1

3 200 -1 -1 8 -1 -1 8 7200 -1 0 1 1 1 2 1 -1 -1
4 200 1 10 0 -1 -1 -1 7200 -1 0 1 1 1 2 1 -1 -1
`
	want := `submit,queue,stages,run,name,namespace,ready,limit,class
0,all,nvidia.com/gpu=4,60,job-2,default,,,
50,all,nvidia.com/gpu=8,3600,job-1,default,,7200,
`
	converted, err := trace.FromSWF(strings.NewReader(text), &trace.Conversion{Namespace: "default", Queue: "all", Processor: gpu})
	if err != nil {
		t.Fatal(err)
	}
	expectTrace(t, converted, want, map[string]int{"never ran": 1, "ask for nothing": 1})
	for text, want := range map[string]string{
		"1 2 3\n":                              "line 1: has 3 fields",
		strings.Repeat("x ", 18) + "\n":        `line 1: field 1 is "x"`,
		strings.Repeat("NaN ", 18) + "\n":      `field 1 is "NaN"`,
		"; only comments\n":                    "no jobs that ran",
		strings.Repeat("1e300 ", 18) + "\n":    `field 1 is "1e300"`,
		strings.Repeat("1", 70_000) + " 2 3\n": "token too long",
	} {
		if _, err := trace.FromSWF(strings.NewReader(text), &trace.Conversion{Namespace: "default", Processor: gpu}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: error is %v, want %q", text, err, want)
		}
	}
}

// expectTrace compares what a file is converted to, and reads it.
func expectTrace(t *testing.T, converted *trace.Converted, want string, skipped map[string]int) {
	t.Helper()
	var out bytes.Buffer
	if err := trace.Write(&out, converted.Jobs); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(skipped, converted.Skipped); diff != "" {
		t.Errorf("left out: -want +got\n%s", diff)
	}
	arrivals := read(t, out.String())
	if len(arrivals) != len(converted.Jobs) {
		t.Errorf("%d of %d jobs can be read", len(arrivals), len(converted.Jobs))
	}
}

func read(t *testing.T, text string) []*replay.Arrival {
	t.Helper()
	arrivals, err := trace.Read(strings.NewReader(text), "default")
	if err != nil {
		t.Fatal(err)
	}
	return arrivals
}

// Times are rounded to seconds, and ready is never later than the end.
func TestTimes(t *testing.T) {
	a := read(t, "\ufeffsubmit,queue,stages,run,ready\n10.4,q,gpu=1,90.6,2m\n5,q,gpu=1,1m,\n")
	if got := a[0].At.Sub(a[1].At); got != 5*time.Second {
		t.Errorf("submitted %s later", got)
	}
	if c := a[0].Jobs[replay.Job{ReplicatedJob: "main"}]; c.Run != 91*time.Second || c.Ready != c.Run {
		t.Errorf("%+v", c)
	}
}
