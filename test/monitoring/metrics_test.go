package monitoring_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// targetLabels are those that Prometheus adds to each series it scrapes.
var targetLabels = []string{"job", "instance", "pod", "service", "endpoint", "container"}

// A catalogue has the labels of each series by its name.
type catalogue map[string][]string

// series returns the series of the metrics of the manager: those of Tranche by their reference, those of its libraries by the list that a
// test of the running manager checks.
func series(t *testing.T) catalogue {
	t.Helper()
	all := catalogue{"up": nil}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(read(t, "docs", "reference", "metrics.md")), -1) {
		var names []string
		if list := strings.TrimSpace(row[3]); list != "" {
			names = strings.Split(list, ", ")
		}
		all.add(row[1], row[2], names)
	}
	if len(all) < 50 {
		t.Fatalf("docs/reference/metrics.md has %d series: correct the pattern", len(all))
	}
	for name, metric := range libraries(t) {
		all.add(name, metric.Type, metric.Labels)
	}
	return all
}

// A libraryMetric is a metric that controller-runtime or the client of Prometheus serves.
type libraryMetric struct {
	Type   string
	Labels []string
}

func libraries(t *testing.T) map[string]libraryMetric {
	t.Helper()
	var all map[string]libraryMetric
	if err := yaml.Unmarshal(read(t, "test", "monitoring", "libraries.yaml"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (c catalogue) add(name, kind string, labels []string) {
	if kind == "histogram" {
		c[name+"_bucket"] = append(slices.Clone(labels), "le")
		c[name+"_sum"], c[name+"_count"] = labels, labels
		return
	}
	c[name] = labels
}

// check reports each metric and each label of an expression that does not exist.
func (c catalogue) check(expr string) (problems []string) {
	parsed, err := language.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			names, ok := c[n.Name]
			if !ok {
				problems = append(problems, fmt.Sprintf("no metric %s exists", n.Name))
			}
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !slices.Contains(names, m.Name) && !slices.Contains(targetLabels, m.Name) {
					problems = append(problems, fmt.Sprintf("%s has no label %s", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			problems = append(problems, c.missing(n.Expr, n.Grouping)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				problems = append(problems, c.missing(n.LHS, n.VectorMatching.MatchingLabels)...)
				problems = append(problems, c.missing(n.RHS, n.VectorMatching.MatchingLabels)...)
			}
		}
		return nil
	})
	return problems
}

// missing returns the labels that no series of an expression has.
func (c catalogue) missing(expr parser.Expr, names []string) (problems []string) {
	existing := c.labels(expr)
	for _, name := range names {
		if !existing[name] {
			problems = append(problems, fmt.Sprintf("no series of %s has label %s", expr, name))
		}
	}
	return problems
}

// labels returns the labels that an expression can have: those by which it is grouped, otherwise those of its series.
func (c catalogue) labels(expr parser.Expr) map[string]bool {
	all := map[string]bool{}
	switch n := expr.(type) {
	case *parser.VectorSelector:
		for _, name := range slices.Concat(c[n.Name], targetLabels) {
			all[name] = true
		}
		return all
	case *parser.AggregateExpr:
		if n.Without {
			all = c.labels(n.Expr)
		}
		for _, name := range n.Grouping {
			all[name] = !n.Without
		}
		return all
	case *parser.Call:
		if n.Func.Name == "label_replace" {
			all[n.Args[1].(*parser.StringLiteral).Val] = true
		}
	}
	for child := range parser.ChildrenIter(expr) {
		if e, ok := child.(parser.Expr); ok {
			maps.Copy(all, c.labels(e))
		}
	}
	return all
}

func TestAlertsNameExistingMetrics(t *testing.T) {
	known := series(t)
	for _, rule := range rules(t) {
		for _, problem := range known.check(rule.Expr) {
			t.Errorf("%s: %s", rule.Alert, problem)
		}
	}
}

// TestMistakesAreFound checks the check.
func TestMistakesAreFound(t *testing.T) {
	known := series(t)
	for expr, want := range map[string]string{
		`sum(kueue_pending)`:                                         "no metric kueue_pending exists",
		`kueue_pending_workloads{queue="a"}`:                         "kueue_pending_workloads has no label queue",
		`sum by (flavor) (kueue_pending_workloads)`:                  "no series of kueue_pending_workloads has label flavor",
		`tranche_stage_hold_seconds`:                                 "no metric tranche_stage_hold_seconds exists",
		`sum by (cohort) (sum by (le) (kueue_cohort_subtree_quota))`: "no series of kueue_cohort_subtree_quota has label le",
		`up and on (cluster_queue) up`:                               "no series of up has label cluster_queue",
		`sum(`:                                                       "unclosed left parenthesis",
	} {
		if problems := strings.Join(known.check(expr), "\n"); !strings.Contains(problems, want) {
			t.Errorf("%s: %q, want %q", expr, problems, want)
		}
	}
}

// TestLibrariesAreUsed keeps the list of the metrics of libraries short.
func TestLibrariesAreUsed(t *testing.T) {
	var used strings.Builder
	for _, rule := range rules(t) {
		used.WriteString(rule.Expr + "\n")
	}
	for _, panel := range loadDashboard(t).Panels {
		for _, target := range panel.Targets {
			used.WriteString(target.Expr + "\n")
		}
	}
	for name := range libraries(t) {
		if !strings.Contains(used.String(), name) {
			t.Errorf("no alert and no panel uses %s: remove it from libraries.yaml", name)
		}
	}
}
