// Package monitoring_test checks the alerts and the dashboard in config/monitoring: each metric and label exists, each expression parses, each
// alert fires and stays silent when it should, and Grafana can load the dashboard. It is a separate module, because it evaluates the rules with the
// packages of Prometheus.
package monitoring_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// language is that of the expressions, without experiments.
var language = parser.NewParser(parser.Options{})

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// rules returns the rules of config/monitoring, as Prometheus reads them.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(read(t, "config", "monitoring", "alerts.yaml"), &object); err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	if err := yaml.NewEncoder(&content).Encode(&object.Spec); err != nil {
		t.Fatal(err)
	}
	groups, problems := rulefmt.Parse(content.Bytes(), false, model.UTF8Validation, language, slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, err := range problems {
		t.Error(err)
	}
	if len(problems) > 0 {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// TestAlertsAreComplete checks what a person needs who gets an alert: how urgent it is, what happened, and what to do.
func TestAlertsAreComplete(t *testing.T) {
	const runbook = "https://github.com/tranche-dev/tranche/blob/main/docs/troubleshooting.md#"
	anchors := headings(t)
	for _, rule := range rules(t) {
		if !regexp.MustCompile(`^Tranche[A-Z]\w+$`).MatchString(rule.Alert) {
			t.Errorf("alert %q does not begin with Tranche", rule.Alert)
		}
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has severity %q, want critical or warning", rule.Alert, severity)
		}
		for _, name := range []string{"summary", "description"} {
			if text := rule.Annotations[name]; !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s %q is not a sentence", rule.Alert, name, text)
			}
		}
		anchor, ok := strings.CutPrefix(rule.Annotations["runbook_url"], runbook)
		if want := strings.ToLower(rule.Alert); !ok || anchor != want || !slices.Contains(anchors, want) {
			t.Errorf("%s has the runbook %q, want %s%s, and a heading for it", rule.Alert, rule.Annotations["runbook_url"], runbook, want)
		}
	}
}

// headings returns the anchors that GitHub gives the headings of docs/troubleshooting.md.
func headings(t *testing.T) []string {
	t.Helper()
	var anchors []string
	for _, found := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(read(t, "docs", "troubleshooting.md"), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(string(found[1])), " ", "-"))
	}
	return anchors
}
