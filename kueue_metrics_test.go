package tranche_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// metricsReference lists the metrics that the manager serves. A test of controllers/metrics compares it with the code.
const metricsReference = "docs/reference/metrics.md"

// TestKueueMetrics compares the metrics of Tranche with those of Kueue: each has the type and the labels that it has in Kueue, or a row with the reason why
// it is missing. Labels that administrators of Kueue can add are not compared.
func TestKueueMetrics(t *testing.T) {
	theirs, ours, missing := kueueMetrics(t), servedMetrics(t), missingMetrics(t)
	if len(theirs) < 60 {
		t.Fatalf("the source of Kueue has %d metrics: correct the search", len(theirs))
	}
	for name, want := range theirs {
		got, isServed := ours[name]
		switch {
		case isServed && missing[name]:
			t.Errorf("%s is served, and %s has a row that it is missing", name, kueueTable)
		case !isServed && !missing[name]:
			t.Errorf("%s is a metric of Kueue that is neither served nor has a row in %s that gives the reason", name, kueueTable)
		case isServed && got != want:
			t.Errorf("%s is a %s, in Kueue a %s", name, got, want)
		}
	}
	for name := range missing {
		if _, exists := theirs[name]; !exists {
			t.Errorf("%s has a row for the metric %s, which Kueue does not have", kueueTable, name)
		}
	}
	for name := range ours {
		if _, exists := theirs[name]; !exists && strings.HasPrefix(name, "kueue_") {
			t.Errorf("%s has the prefix of Kueue, which does not have it", name)
		}
	}
}

// servedMetrics returns the type and the labels of each metric by its name, as in "gauge of cluster_queue, replica_role".
func servedMetrics(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(metricsReference)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		all[row[1]] = row[2] + " of " + row[3]
	}
	return all
}

// missingMetrics returns the metrics of Kueue for which a table gives the reason why Tranche does not serve them. The table names them without their prefix,
// which is kueue_ unless the row names another one.
func missingMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(kueueTable)
	if err != nil {
		t.Fatal(err)
	}
	_, table, isThere := strings.Cut(string(text), "\n## Metrics that Tranche does not have\n")
	if !isThere {
		t.Fatalf("%s has no table of missing metrics", kueueTable)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	missing := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\| ").FindAllStringSubmatch(table, -1) {
		names := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1)
		prefix := "kueue_"
		if last := names[len(names)-1][1]; strings.HasSuffix(last, "_") {
			prefix, names = last, names[:len(names)-1]
		}
		for _, name := range names {
			missing[prefix+name[1]] = true
		}
	}
	return missing
}

// kueueMetrics returns the type and the labels of each metric that the source of Kueue makes.
func kueueMetrics(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatalf("locate the source of Kueue: %v", err)
	}
	source := filepath.Join(strings.TrimSpace(string(dir)), "pkg", "metrics", "metrics.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		if !isCall || len(call.Args) != 2 {
			return true
		}
		maker, isMaker := call.Fun.(*ast.SelectorExpr)
		if !isMaker {
			return true
		}
		kind := regexp.MustCompile(`^New(Gauge|Counter|Histogram)Vec$`).FindStringSubmatch(maker.Sel.Name)
		options, isOptions := call.Args[0].(*ast.CompositeLit)
		if kind == nil || !isOptions {
			return true
		}
		all[nameOfMetric(t, options)] = strings.ToLower(kind[1]) + " of " + strings.Join(literals(call.Args[1]), ", ")
		return true
	})
	return all
}

// nameOfMetric returns the name with which a metric is served.
func nameOfMetric(t *testing.T, options *ast.CompositeLit) string {
	t.Helper()
	subsystems := map[string]string{"KueueName": "kueue_", "MultiKueueName": "multikueue_"}
	subsystem, name := "", ""
	for _, element := range options.Elts {
		field, isField := element.(*ast.KeyValueExpr)
		if !isField {
			continue
		}
		switch key, _ := field.Key.(*ast.Ident); key.Name {
		case "Subsystem":
			constant, _ := field.Value.(*ast.SelectorExpr)
			subsystem = subsystems[constant.Sel.Name]
		case "Name":
			name = literals(field.Value)[0]
		}
	}
	if subsystem == "" || name == "" {
		t.Fatalf("the source of Kueue has a metric %q of an unknown subsystem", name)
	}
	return subsystem + name
}

// literals returns the strings in an expression, in order.
func literals(in ast.Expr) (all []string) {
	ast.Inspect(in, func(n ast.Node) bool {
		if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}
