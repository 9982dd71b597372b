package monitoring_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A dashboard has the fields that Grafana needs to load it.
type dashboard struct {
	Title         string  `json:"title"`
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
}

type source struct{ Type, UID string }

type variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Query      json.RawMessage `json:"query"`
	Definition string          `json:"definition"`
	AllValue   string          `json:"allValue"`
	Datasource source          `json:"datasource"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Datasource   source `json:"datasource"`
	} `json:"targets"`
}

func loadDashboard(t *testing.T) *dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, "config", "monitoring", "dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// prometheus is the data source that the user of the dashboard chooses.
var prometheus = source{"prometheus", "${datasource}"}

func TestDashboardLoads(t *testing.T) {
	d := loadDashboard(t)
	if d.Title != "Tranche" || d.UID != "tranche" || d.SchemaVersion < 36 {
		t.Errorf("title %q, uid %q, schemaVersion %d", d.Title, d.UID, d.SchemaVersion)
	}
	var rows []string
	ids, titles := map[int]bool{}, map[string]bool{}
	for i, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] {
			t.Errorf("panel %q has id %d, which is not unique", p.Title, p.ID)
		}
		if p.Title == "" || titles[p.Title] {
			t.Errorf("panel %d has title %q, which is empty or not unique", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if g := p.GridPos; g.W <= 0 || g.H <= 0 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is outside of the grid: %+v", p.Title, g)
		}
		for _, q := range d.Panels[:i] {
			if a, b := p.GridPos, q.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap: %+v, %+v", q.Title, p.Title, b, a)
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	if want := []string{"Queues", "Stages", "Admissions", "Manager"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

func TestDashboardPanels(t *testing.T) {
	known := series(t)
	for _, p := range loadDashboard(t).Panels {
		if p.Type == "row" {
			continue
		}
		if !slices.Contains([]string{"timeseries", "stat", "bargauge"}, p.Type) {
			t.Errorf("panel %q is a %s, which no test knows", p.Title, p.Type)
		}
		if p.Datasource != prometheus || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: data source %v, description %q, %d targets", p.Title, p.Datasource, p.Description, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.Datasource != prometheus || target.RefID == "" || refs[target.RefID] {
				t.Errorf("panel %q: target %q has data source %v", p.Title, target.RefID, target.Datasource)
			}
			refs[target.RefID] = true
			expr := interpolate(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q uses a variable that the dashboard does not have: %s", p.Title, expr)
			}
			for _, problem := range known.check(expr) {
				t.Errorf("panel %q: %s", p.Title, problem)
			}
			parsed, err := language.ParseExpr(expr)
			if err != nil {
				continue // check has reported it
			}
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !known.labels(parsed)[label[1]] {
					t.Errorf("panel %q: the legend names %s, which %s has not", p.Title, label[1], expr)
				}
			}
		}
	}
}

// interpolate fills in what Grafana would: the chosen values of variables, and an interval.
func interpolate(expr string) string {
	return strings.NewReplacer("$cluster_queue", ".*", "$namespace", ".*", "$resource", ".*", "$__rate_interval", "5m").Replace(expr)
}

func TestDashboardVariables(t *testing.T) {
	known := series(t)
	var names []string
	for _, v := range loadDashboard(t).Templating.List {
		names = append(names, v.Name)
		if v.Type == "datasource" {
			if string(v.Query) != `"prometheus"` {
				t.Errorf("variable %s offers %s, want data sources of type prometheus", v.Name, v.Query)
			}
			continue
		}
		query := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if query == nil || !slices.Contains(known[query[1]], query[2]) {
			t.Errorf("variable %s: %q names no label of a metric", v.Name, v.Definition)
		}
		var sent struct{ Query string }
		if err := json.Unmarshal(v.Query, &sent); err != nil || sent.Query != v.Definition || v.Datasource != prometheus || v.AllValue != ".*" {
			t.Errorf("variable %s sends %s to %v with %q for all: %v", v.Name, v.Query, v.Datasource, v.AllValue, err)
		}
	}
	if want := []string{"datasource", "cluster_queue", "namespace", "resource"}; !slices.Equal(names, want) {
		t.Errorf("variables %q, want %q", names, want)
	}
}
