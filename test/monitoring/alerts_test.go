package monitoring_test

import (
	"context"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// A group has series, and the alerts that fire on them. The fields are those of the unit tests of promtool.
type group struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertRuleTests []struct {
		EvalTime  model.Duration `yaml:"eval_time"`
		Alertname string         `yaml:"alertname"`
		ExpAlerts []alert        `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// An alert fires. Annotations are compared only if the group has some.
type alert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// TestAlerts evaluates each alert at each interval of time, as Prometheus does. Each alert has a group in which it fires, and one in which it
// does not although the group has its metrics.
func TestAlerts(t *testing.T) {
	content, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []group `yaml:"tests"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	byName := map[string]rulefmt.Rule{}
	for _, rule := range rules(t) {
		byName[rule.Alert] = rule
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, g := range file.Tests {
		t.Run(g.Name, func(t *testing.T) {
			evaluator := newEvaluator(t, &g)
			for _, want := range g.AlertRuleTests {
				rule, ok := byName[want.Alertname]
				if !ok {
					t.Fatalf("no rule has the alert %s", want.Alertname)
				}
				fires[rule.Alert] = fires[rule.Alert] || len(want.ExpAlerts) > 0
				silent[rule.Alert] = silent[rule.Alert] || len(want.ExpAlerts) == 0
				got := evaluator.firing(&rule, time.Duration(g.Interval), time.Duration(want.EvalTime))
				for i := range got {
					if i < len(want.ExpAlerts) && want.ExpAlerts[i].Annotations == nil {
						got[i].Annotations = nil
					}
				}
				if diff := cmp.Diff(want.ExpAlerts, got); diff != "" && len(want.ExpAlerts)+len(got) > 0 {
					t.Errorf("%s at %s (-want +got):\n%s", rule.Alert, want.EvalTime, diff)
				}
			}
		})
	}
	for name := range byName {
		if !fires[name] || !silent[name] {
			t.Errorf("%s has a test in which it fires: %t, and one in which it does not: %t", name, fires[name], silent[name])
		}
	}
}

// An evaluator computes the alerts of one group of series.
type evaluator struct {
	t      *testing.T
	engine *promql.Engine
	series storage.Queryable
}

func newEvaluator(t *testing.T, g *group) *evaluator {
	t.Helper()
	var all []storage.Series
	for _, input := range g.InputSeries {
		lset, values, err := language.ParseSeriesDesc(input.Series + " " + input.Values)
		if err != nil {
			t.Fatalf("%s: %v", input.Series, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{time.Unix(0, 0).Add(time.Duration(i) * time.Duration(g.Interval)).UnixMilli(), v.Value})
			}
		}
		all = append(all, storage.NewListSeries(lset, samples))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: language})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return &evaluator{t: t, engine: engine, series: &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			var found []storage.Series
			for _, s := range all {
				if matches(s.Labels(), matchers) {
					found = append(found, s)
				}
			}
			return &seriesSet{all: found}
		},
	}}}
}

func matches(lset labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(lset.Get(m.Name)) {
			return false
		}
	}
	return true
}

// firing returns the alerts of a rule that fire at the end: the expression has had a value since the time of `for`, at each interval.
func (e *evaluator) firing(rule *rulefmt.Rule, interval, end time.Duration) []alert {
	e.t.Helper()
	since := map[string]time.Duration{}
	var firing []alert
	for at := time.Duration(0); at <= end; at += interval {
		active := map[string]time.Duration{}
		firing = nil
		for _, found := range e.query(rule.Expr, at) {
			key := found.Metric.String()
			active[key] = at
			if before, ok := since[key]; ok {
				active[key] = before
			}
			if at-active[key] >= time.Duration(rule.For) {
				firing = append(firing, e.expand(rule, found, at))
			}
		}
		since = active
	}
	return firing
}

func (e *evaluator) query(expr string, at time.Duration) promql.Vector {
	e.t.Helper()
	query, err := e.engine.NewInstantQuery(context.Background(), e.series, nil, expr, time.Unix(0, 0).Add(at))
	if err != nil {
		e.t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil {
		e.t.Fatalf("%s: %v", expr, err)
	}
	return append(promql.Vector(nil), vector...)
}

// expand fills the labels of a series and its value into the annotations of its alert.
func (e *evaluator) expand(rule *rulefmt.Rule, found promql.Sample, at time.Duration) alert {
	e.t.Helper()
	result := alert{Labels: found.Metric.Map(), Annotations: map[string]string{}}
	delete(result.Labels, labels.MetricName)
	data := template.AlertTemplateData(maps.Clone(result.Labels), nil, "", found)
	maps.Copy(result.Labels, rule.Labels)
	for name, text := range rule.Annotations {
		definitions := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
		expander := template.NewTemplateExpander(context.Background(), definitions+text, rule.Alert, data, model.TimeFromUnix(int64(at.Seconds())),
			nil, &url.URL{}, []string{"missingkey=error"})
		expanded, err := expander.Expand()
		if err != nil {
			e.t.Fatalf("%s: %s: %v", rule.Alert, name, err)
		}
		if name != "runbook_url" {
			result.Annotations[name] = expanded
		}
	}
	return result
}

// A sample is one value of a series.
type sample struct {
	time  int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.time }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// A seriesSet iterates over series.
type seriesSet struct {
	all     []storage.Series
	current storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.all) == 0 {
		return false
	}
	s.current, s.all = s.all[0], s.all[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.current }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
