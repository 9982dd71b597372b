package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

func TestParseUsage(t *testing.T) {
	const stat = "4242 (a (strange) name) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18\n"
	tests := map[string]struct {
		stat, status string
		want         usage
		wantError    string
	}{
		"both":          {stat, "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n", usage{cpu: 2 * time.Second, resident: 1 << 20, peak: 2 << 20}, ""},
		"no peak":       {stat, "Name:\tx\n", usage{}, "VmHWM"},
		"no memory now": {stat, "VmHWM: 1 kB\n", usage{}, "VmRSS"},
		"short":         {"4242 (x) S 1", "VmHWM: 1 kB\n", usage{}, "fields"},
		"no number":     {strings.Replace(stat, "150", "x", 1), "VmHWM: 1 kB\n", usage{}, "parse stat"},
		"no memory":     {stat, "VmHWM: x kB\n", usage{}, "parse status"},
		"only stats":    {stat, "", usage{}, "VmHWM"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseUsage(test.stat, test.status)
			checkError(t, err, test.wantError)
			if err == nil && got != test.want {
				t.Errorf("parseUsage() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseBusy(t *testing.T) {
	spent, cores, err := parseBusy("cpu  100 1 20 9999 9999 0 3 4 0 0\ncpu0 50 1 10 9 9 0 3 4 0 0\ncpu1 50 0 10 9 9 0 0 0 0 0\nintr 1 2\n")
	if want := 1280 * time.Millisecond; err != nil || spent != want || cores != 2 {
		t.Errorf("parseBusy() = %s, %d, %v, want %s, 2", spent, cores, err, want)
	}
	_, _, err = parseBusy("intr 1 2\n")
	checkError(t, err, "no processors")
}

func TestParseSamples(t *testing.T) {
	const page = `# HELP requests_total x
# TYPE requests_total counter
requests_total{code="200",method="GET"} 12
requests_total{path="/a,b=\"}",method="PUT"} 1e+06
requests_total_other{code="1"} 5
requests_total 3
`
	tests := map[string]struct {
		page      string
		want      []sample
		wantError string
	}{
		"some": {page: page, want: []sample{
			{map[string]string{"code": "200", "method": "GET"}, 12}, {map[string]string{"path": `/a,b="}`, "method": "PUT"}, 1e6},
		}},
		"none":      {page: "other{} 1\n"},
		"no labels": {page: "requests_total{} 1\n", want: []sample{{map[string]string{}, 1}}},
		"torn":      {page: `requests_total{code="200`, wantError: "label code"},
		"no value":  {page: `requests_total{code="200"} x`, wantError: "requests_total"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSamples(strings.NewReader(test.page), "requests_total")
			checkError(t, err, test.wantError)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(sample{})); err == nil && diff != "" {
				t.Errorf("parseSamples(): -want +got\n%s", diff)
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
	known := map[string]struct{}{}
	for _, f := range figuresOf(s, &results{driver: newDriver(nil, s), floors: make([]floor, 2), after: reading{cores: 1}}) {
		known[f.name] = struct{}{}
	}
	ran := &results{driver: newDriver(nil, s), after: reading{cores: 1}}
	for _, f := range peersRatios([]side{{peer: tranche, runs: [][]figure{peerFigures(s, ran)}}}) {
		known[f.name] = struct{}{}
	}
	compared := map[string]struct{}{}
	for _, f := range comparisonFigures(&findings{comparison: account.Comparison{Whole: &account.Run{}, Staged: &account.Run{}}}) {
		compared[f.name] = struct{}{}
	}
	guarded := map[string]struct{}{}
	for _, size := range guardsSizes {
		for _, write := range []string{"create", "update"} {
			for _, f := range guardsFigures(fmt.Sprintf("%s/%d", write, size), 1, 1) {
				guarded[f.name] = struct{}{}
			}
		}
	}
	for _, write := range []string{"job/create", "job/release", "job/status", "pod/create", "pod/status"} {
		for _, f := range guardsFigures(write, 1, 1) {
			guarded[f.name] = struct{}{}
		}
	}
	staged := map[string]struct{}{}
	for _, c := range stagesChains {
		for _, f := range c.figures(1, 1) {
			staged[f.name] = struct{}{}
		}
	}
	handedOver := map[string]struct{}{}
	ended := handoverRun{name: "queued", handover: []handover{{1, 1, 1, 1, 1}}, requests: requestCounts{{"tranche", "jobs", "patch"}: 1}}
	for _, f := range handoverFigures(&ended, &ended, 1) {
		handedOver[f.name] = struct{}{}
	}
	held := map[string]struct{}{}
	for _, f := range heldFigures(ended.requests, time.Minute, time.Second) {
		held[f.name] = struct{}{}
	}
	asked := map[string]struct{}{}
	for _, q := range questions(backlog(1000), "", "") {
		for _, f := range verbFigures(&q, 0, 0) {
			asked[f.name] = struct{}{}
		}
	}
	started := map[string]struct{}{}
	for _, f := range new(startFound).figures() {
		started[f.name] = struct{}{}
	}
	replayed := map[string]struct{}{}
	mixedFigures, err := simulatedRun(t, latencies{}).figures()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range mixedFigures {
		replayed[f.name] = struct{}{}
	}
	for _, bound := range b {
		figures := known
		switch bound.Shape {
		case comparisonShape:
			figures = compared
		case guardsShape:
			figures = guarded
		case stagesShape:
			figures = staged
		case handoverShape:
			figures = handedOver
		case heldShape:
			figures = held
		case mixedShape:
			figures = replayed
		case verbsShape:
			figures = asked
		case startShape:
			figures = started
		}
		if _, ok := figures[bound.Figure]; !ok {
			t.Errorf("bound for %q, which is no figure", bound.Figure)
		}
		if _, _, err := load(&options{}, bound.Shape); bound.Shape != "" && err != nil {
			t.Errorf("bound for shape %q: %v", bound.Shape, err)
		}
	}
}

func TestLoadShape(t *testing.T) {
	s, name, err := loadShape(&options{atOnce: true}, "baseline")
	if err != nil || name != "baseline-at-once" || s.ArrivalBound() != s.Classes[2].Runs.Duration {
		t.Errorf("loadShape() = %q with arrivals for %s, %v", name, s.ArrivalBound(), err)
	}
	_, name, err = loadShape(&options{}, "./shapes/alone-tenth.yaml")
	if err != nil || name != "alone-tenth" {
		t.Errorf("loadShape() = %q, %v, want alone-tenth", name, err)
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
