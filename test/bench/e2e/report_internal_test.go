package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

// Processor time and memory are those of this process and of this machine.
func TestUsage(t *testing.T) {
	u, err := readUsage(os.Getpid())
	if err != nil || u.resident < 1<<20 || u.peak < u.resident {
		t.Errorf("readUsage() = %+v, %v", u, err)
	}
	if spent, cores, err := busy(); err != nil || spent < u.cpu || cores < 1 {
		t.Errorf("busy() = %s, %d, %v", spent, cores, err)
	}
	_, err = readUsage(-1)
	checkError(t, err, "process -1")
}

func TestAddSamples(t *testing.T) {
	const page = `# TYPE requests_total counter
requests_total{code="200",method="GET"} 12
requests_total{path="/a,b=\"}",method="PUT"} 1e+06
# TYPE size gauge
size 3
`
	tests := map[string]struct {
		page, metric string
		want         map[string]float64
		wantError    string
	}{
		"counter": {page: page, metric: "requests_total", want: map[string]float64{"GET": 12, "PUT /a,b=\"}": 1e6}},
		"gauge":   {page: page, metric: "size", want: map[string]float64{"": 3}},
		"none":    {page: page, metric: "requests", want: map[string]float64{}},
		"torn":    {page: `requests_total{code="200`, metric: "requests_total", wantError: "requests_total"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]float64{}
			err := addSamples([]byte(test.page), test.metric, func(labels map[string]string, value float64) {
				got[strings.TrimSpace(labels["method"]+" "+labels["path"])] = value
			})
			checkError(t, err, test.wantError)
			if diff := cmp.Diff(test.want, got); err == nil && diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func TestCounts(t *testing.T) {
	grown := counts{"a": 5, "b": 2, "c": 1}.since(counts{"a": 2, "b": 2, "d": 4})
	if diff := cmp.Diff(counts{"a": 3, "c": 1}, grown); diff != "" || grown.total() != 4 {
		t.Errorf("since(): total %g, -want +got\n%s", grown.total(), diff)
	}
}

func TestBounds(t *testing.T) {
	b, err := decodeBounds([]byte("bounds:\n- {figure: a, shape: special, most: 3}\n- {figure: a, most: 1}\n- {figure: b, shape: special, most: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	figures := []figure{{name: "a", value: 2}, {name: "b", value: 1}, {name: "c", value: 9}}
	tests := map[string]struct{ want []string }{
		"any":     {[]string{"any: a is 2"}},
		"special": {[]string{"special: b is 1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := b.exceeded(name, figures)
			if !slices.EqualFunc(test.want, got, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
				t.Errorf("exceeded() = %q, want %q", got, test.want)
			}
		})
	}
	_, err = decodeBounds([]byte("bounds:\n- {figure: a, least: 1}\n"))
	checkError(t, err, "least")
}

// Each bound is for a figure of the report; otherwise it would check nothing.
func TestBoundsAreAboutFigures(t *testing.T) {
	b, err := decodeBounds(boundsFile)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := loadShape(&options{}, "baseline")
	if err != nil {
		t.Fatal(err)
	}
	var guarded, staged, asked []figure
	for _, size := range guardsSizes {
		for _, write := range append(writesOfJobSets(nil, size), writesOfJobs(nil, nil)...) {
			guarded = append(guarded, guardsFigures(write.name, 1, 1)...)
		}
	}
	for _, c := range stagesChains {
		staged = append(staged, c.figures(1, 1)...)
	}
	for _, q := range questions(backlog(1000), "", "") {
		asked = append(asked, verbFigures(&q, 0, 0)...)
	}
	mixedFigures, err := simulatedRun(t, latencies{}).figures()
	if err != nil {
		t.Fatal(err)
	}
	handed := handoverRun{name: "queued", parts: map[string][]time.Duration{"released": {1}}, requests: counts{"tranche/jobs/patch": 1}}
	ran := &results{driver: newDriver(nil, s), floors: make([]floor, 2), after: reading{cores: 1}}
	loaded := append(figuresOf(s, ran), peersRatios([]side{{peer: tranche, runs: [][]figure{peerFigures(s, ran)}}})...)
	reported := map[string][]figure{
		"": loaded, "baseline": loaded, guardsShape: guarded, stagesShape: staged, mixedShape: mixedFigures, verbsShape: asked,
		comparisonShape: comparisonFigures(&findings{comparison: account.Comparison{Whole: &account.Run{}, Staged: &account.Run{}}}),
		handoverShape:   handoverFigures(&handed, &handed, 1), heldShape: heldFigures(handed.requests, time.Minute, time.Second), startShape: new(startFound).figures(),
	}
	for _, bound := range b {
		if !slices.ContainsFunc(reported[bound.Shape], func(f figure) bool { return f.name == bound.Figure }) {
			t.Errorf("bound for %q, which is no figure of %q", bound.Figure, bound.Shape)
		}
	}
}

func TestLoadShape(t *testing.T) {
	s, name, err := loadShape(&options{atOnce: true}, "baseline")
	if err != nil || name != "baseline-at-once" || s.ArrivalBound() != s.Classes[2].Runs.Duration {
		t.Errorf("loadShape() = %q with arrivals for %s, %v", name, s.ArrivalBound(), err)
	}
	_, name, err = loadShape(&options{}, "./shapes/baseline-tenth.yaml")
	if err != nil || name != "baseline-tenth" {
		t.Errorf("loadShape() = %q, %v, want baseline-tenth", name, err)
	}
	_, _, err = loadShape(&options{}, "nothing")
	checkError(t, err, "nothing.yaml")
}

func TestDriverBooksTheShape(t *testing.T) {
	queue := shape.Queue{Strategy: "BestEffortFIFO", LocalQueues: 2}
	queue.NominalCPU.Set(1)
	s := &shape.Shape{Cohorts: 2, QueuesPerCohort: 2, Queue: queue, Classes: []shape.Class{{Name: "a", Count: 3}, {Name: "b", Count: 1}}}
	d := newDriver(nil, s)
	var got []string
	for i := range d.lives {
		l := &d.lives[i]
		if d.index[l.key] != i {
			t.Errorf("index of %s is %d, want %d", l.key, d.index[l.key], i)
		}
		if got = append(got, l.key.String()+" "+l.localQueue); len(got) == 4 {
			break
		}
	}
	want := []string{"cq-0000/a-0000 lq-000", "cq-0000/a-0001 lq-001", "cq-0000/a-0002 lq-000", "cq-0000/b-0000 lq-001"}
	if diff := cmp.Diff(want, got); diff != "" || len(d.lives) != s.Lives() {
		t.Errorf("%d lives, want %d: -want +got\n%s", len(d.lives), s.Lives(), diff)
	}
}
