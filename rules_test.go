// Package tranche_test holds only the rules of this repository, as tests.
package tranche_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tranche-dev/tranche/"

// layers lists, for each directory, the directories of this module that it may import besides its own.
// The longest matching row counts. A trailing /* stands for the children of a directory.
var layers = map[string][]string{
	"apis":                {"apis"},
	"queue":               {"apis", "queue/ranking"},
	"queue/ranking":       {},
	"admission/quota":     {"apis"},
	"admission/stageplan": {"apis", "admission/quota"},
	// quotaworkload holds the facts about a quota Workload that the engine and its lifecycle both read.
	"admission/quotaworkload": {"apis", "admission/quota"},
	"admission/charge":        {"apis"},
	"admission/checkpoint":    {"apis"},
	"admission/device":        {"apis"},
	// podresources adds to a pod what the plan counts.
	"admission/podresources":         {"apis", "admission/stageplan"},
	"admission/flavor":               {"apis", "admission/quota"},
	"admission/fairshare":            {"apis", "queue/ranking", "admission/quota"},
	"admission/preempt":              {"apis", "queue/ranking", "admission/quota", "admission/stageplan", "admission/flavor", "admission/fairshare"},
	"admission/safety":               {"apis", "admission/quota", "admission/stageplan", "admission/flavor", "admission/fairshare"},
	"admission/internal/version":     {},
	"admission/internal/decision":    engineLeaves(),
	"admission/internal/demand":      engineLeaves("version"),
	"admission/internal/queuespec":   engineLeaves("version"),
	"admission/internal/settings":    engineLeaves("version", "queuespec"),
	"admission/internal/unopened":    {},
	"admission/internal/timer":       {"queue/ranking"},
	"admission/internal/alternative": {"admission/quota"},
	"admission/internal/sizehint":    {"admission/quota", "admission/flavor"},
	"admission/internal/packing":     {"admission/quota", "admission/flavor"},
	"admission/internal/unordered":   {},
	"admission/internal/notice":      engineLeaves("decision"),
	"admission/internal/cohorts":     engineLeaves("version"),
	"admission/internal/model":       engineLeaves("cohorts", "notice", "unordered", "unopened", "timer", "alternative", "version", "decision", "demand", "queuespec", "settings"),
	"admission/internal/backfill":    engineLeaves("model"),
	"admission/internal/lookahead":   engineLeaves("decision", "demand", "model"),
	"admission/internal/wording":     engineLeaves("decision", "model"),
	"admission/internal/level":       engineLeaves("model"),
	"admission/internal/quorum":      engineLeaves("decision", "model"),
	"admission/internal/observe":     engineLeaves("cohorts", "notice", "version", "decision", "demand", "queuespec", "settings", "level", "model"),
	"admission/internal/check":       engineLeaves("sizehint", "packing", "backfill", "lookahead", "wording", "level", "quorum", "version", "decision", "demand", "queuespec", "settings", "model"),
	"admission/internal/verdict":     engineLeaves("decision", "settings", "model", "check"),
	"admission/internal/cycle":       engineLeaves("notice", "version", "decision", "demand", "queuespec", "settings", "backfill", "model", "check"),
	"admission/internal/report":      engineLeaves("cohorts", "backfill", "version", "decision", "demand", "queuespec", "settings", "model", "check"),
	"admission":                      {"apis", "queue", "admission/*"},
	"lifecycle": {
		"apis", "admission/stageplan", "admission/quota", "admission/flavor", "admission/device", "admission/charge", "admission/podresources",
		"admission/quotaworkload", "lifecycle/*",
	},
	// manifest reads what users write.
	"manifest": {},
	// snapshot holds the objects that the verbs answer about.
	"snapshot":         {"apis", "manifest"},
	"snapshot/collect": {"apis", "snapshot"},
	// crd and policies only embed the manifests beside them.
	"config": {},
	// lint asks an engine about manifests, and the lifecycle for the quota Workloads of their JobSets.
	"lint":              {"apis", "manifest", "snapshot", "admission", "admission/*", "lifecycle/*", "config/*", "lint/*"},
	"simulator":         {"apis", "queue", "admission", "admission/*", "lifecycle/*", "simulator/*", "manifest", "snapshot"},
	"simulator/unblock": {"apis", "admission", "simulator"},
	// replay runs jobs that have arrived, and shadow compares the runs with what happened.
	"simulator/replay": {"apis", "admission", "admission/*", "snapshot", "simulator", "simulator/internal/cluster", "simulator/internal/load"},
	// trace makes arrivals of the lines of a trace, and summarizes their replays.
	"simulator/trace":             {"apis", "admission/stageplan", "snapshot", "simulator/replay", "simulator/scenario"},
	"shadow":                      {"apis", "admission/stageplan", "simulator/replay", "snapshot"},
	"shadow/auditlog":             {"apis", "shadow", "snapshot"},
	"shadow/live":                 {"apis", "shadow", "snapshot"},
	"simulator/internal/timeline": {},
	// plan compares two simulations, and writes Jobs as the admission policies do.
	"plan":                              {"apis", "admission", "admission/charge", "lifecycle/childjob", "lifecycle/queuedjob", "simulator", "snapshot"},
	"simulator/internal/cluster":        {"apis", "admission", "admission/*", "lifecycle/*", "simulator/scenario", "simulator/internal/timeline"},
	"simulator/internal/jobcontrollers": {"apis", "admission", "admission/*", "lifecycle/*", "simulator/internal/cluster"},
	"simulator/internal/load":           {"apis", "admission", "admission/*", "lifecycle/*", "snapshot", "simulator/scenario", "simulator/internal/cluster", "simulator/internal/timeline"},
	"simulator/internal/initial":        {"manifest", "simulator/internal/cluster"},
	"simulator/internal/idle":           {"apis", "admission/*", "lifecycle/*", "snapshot", "simulator/internal/cluster"},
	"simulator/internal/scope":          {"apis", "admission", "lifecycle/queuedjob", "snapshot", "simulator/internal/cluster"},
	"simulator/internal/pastruns":       {"apis", "lifecycle/*", "snapshot"},
	"simulator/internal/repeats":        {"apis", "admission", "admission/quotaworkload", "snapshot", "simulator/internal/cluster", "simulator/internal/manager"},
	"simulator/internal/durations":      {"apis", "admission/quotaworkload", "lifecycle/*", "simulator/internal/cluster", "simulator/internal/pastruns"},
	"simulator/internal/rest":           {"apis", "admission", "admission/quotaworkload", "simulator/internal/cluster"},
	"simulator/internal/history":        {"apis", "admission", "admission/*", "lifecycle/*", "simulator/internal/cluster"},
	"simulator/internal/manager":        {"apis", "admission", "admission/*", "lifecycle/*", "simulator/scenario", "simulator/internal/cluster"},
	// dashboard answers from objects; its children read a cluster, serve the answers and have the page.
	"dashboard":          {"apis", "queue", "admission/quota", "admission/quotaworkload", "admission/stageplan", "lifecycle/*", "dashboard/redact", "dashboard/internal/*"},
	"dashboard/redact":   {},
	"dashboard/internal": {"apis", "admission/quota"},
	"dashboard/page":     {},
	"dashboard/access":   {"dashboard"},
	"dashboard/server":   {"apis", "dashboard", "dashboard/access", "snapshot"},
	"dashboard/live":     {"apis", "admission/quotaworkload", "dashboard", "dashboard/server", "snapshot"},
	// gangobjects, barrier, apply, patch, informer and apiwatch are no controllers: they know the objects of gangs, how pods wait, how to write,
	// how to watch and what the API server has, for the controllers.
	"controllers": {
		"apis", "queue", "queue/ranking", "admission", "admission/*", "lifecycle/*", "controllers/engine", "controllers/events", "controllers/metrics",
		"controllers/gangobjects", "controllers/groupstart/barrier", "controllers/internal/*", "controllers/apiwatch",
	},
	// forecast simulates what follows from the cache.
	"controllers/forecast": {
		"apis", "queue/ranking", "admission", "admission/*", "lifecycle/*", "snapshot", "simulator", "controllers/metrics", "controllers/internal/informer",
	},
	// The dashboard of the manager is fed from its cache.
	"controllers/dashboard": {
		"apis", "admission", "admission/quotaworkload", "dashboard", "dashboard/*", "controllers/engine", "controllers/internal/informer",
	},
	"cmd":  {"apis", "queue", "admission", "admission/*", "lifecycle/*", "simulator", "simulator/*", "manifest", "snapshot", "snapshot/*", "lint", "plan", "dashboard", "dashboard/*", "controllers/*", "cmd/*", "shadow", "shadow/*"},
	"test": {"apis", "queue", "admission", "admission/*", "lifecycle/*", "simulator", "simulator/*", "manifest", "snapshot", "snapshot/*", "lint", "plan", "dashboard", "dashboard/*", "test/*", "shadow", "shadow/*"},
}

// engineLeaves returns what a package inside the Engine may import: all that is below the Engine, and some of the packages inside it.
func engineLeaves(inside ...string) []string {
	allowed := []string{"apis", "queue", "queue/ranking"}
	for _, child := range []string{
		"quota", "stageplan", "quotaworkload", "charge", "device", "podresources", "flavor", "fairshare", "preempt", "safety",
	} {
		allowed = append(allowed, "admission/"+child)
	}
	for _, child := range inside {
		allowed = append(allowed, "admission/internal/"+child)
	}
	return allowed
}

// pure packages may import these, the layers above, and no more.
var pureImports = []string{
	"cmp", "container/heap", "errors", "fmt", "hash/fnv", "iter", "maps", "math", "math/bits", "slices", "strconv", "strings", "time", "unicode",
	"k8s.io/api/core/v1", "k8s.io/api/resource/v1", "k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/types",
	// Selectors, tolerations and pod requests mean what Kubernetes says they mean, so its own code computes them. None of these
	// reaches a client.
	"k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/labels",
	"k8s.io/component-helpers/resource", "k8s.io/component-helpers/scheduling/corev1", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity",
	// So do conditions: who sets one keeps its transition time while its status stays.
	"k8s.io/apimachinery/pkg/api/meta", "k8s.io/apimachinery/pkg/api/equality", "k8s.io/utils/ptr",
	"sigs.k8s.io/kueue/apis/kueue/v1beta2", "sigs.k8s.io/jobset/api/jobset/v1alpha2",
	// The lifecycle reads and renders Jobs, gang objects and names as the API server and Kueue do.
	"k8s.io/api/batch/v1", "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured", "k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/util/validation", "sigs.k8s.io/jobset/pkg/constants", "crypto/sha1",
	// Annotations of gangs are JSON, and names that tenants can influence are told apart by a hash that they cannot break.
	"encoding/json", "encoding/hex", "crypto/sha256",
}

type pkg struct {
	ImportPath, Dir, Name, Doc string
	Imports, Deps, GoFiles     []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,Deps,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// row returns the row of layers for a directory of this module.
func row(dir string) (allowed []string, ok bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if allowed, ok = layers[d]; ok {
			return allowed, true
		}
	}
	return nil, false
}

// covers reports whether an entry of a row names dir or holds it.
func covers(entry, dir string) bool {
	if parent, ok := strings.CutSuffix(entry, "/*"); ok {
		return strings.HasPrefix(dir, parent+"/")
	}
	return dir == entry || entry == "apis" && strings.HasPrefix(dir, "apis/")
}

func (p pkg) dir() string { return strings.TrimPrefix(p.ImportPath, module) }

// ships tells packages that end up in a binary for users from those that only test it.
func (p pkg) ships() bool { return p.dir() != "test" && !strings.HasPrefix(p.dir(), "test/") }

func (p pkg) pure() bool {
	top, _, _ := strings.Cut(p.dir(), "/")
	return top == "queue" || top == "admission" || top == "lifecycle" || p.dir() == "dashboard" || strings.HasPrefix(p.dir(), "dashboard/internal/")
}

func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		allowed, ok := row(p.dir())
		if !ok {
			t.Errorf("%s: in no layer; give its directory a row in layers", p.ImportPath)
		}
		for _, imp := range p.Imports {
			dir, ours := strings.CutPrefix(imp, module)
			switch {
			case ours && !slices.ContainsFunc(allowed, func(e string) bool { return covers(e, dir) }):
				t.Errorf("%s imports %s: dependencies point down only", p.ImportPath, imp)
			case !ours && p.pure() && !slices.Contains(pureImports, imp):
				t.Errorf("%s imports %s: a pure package decides, it does not act", p.ImportPath, imp)
			}
		}
	}
}

// TestReach looks at everything that a package links, not only at what it names.
func TestReach(t *testing.T) {
	for _, p := range packages(t) {
		for _, dep := range p.Deps {
			if p.pure() && (strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime") || strings.HasPrefix(dep, "k8s.io/client-go")) {
				t.Errorf("%s reaches %s: no client below controllers", p.ImportPath, dep)
			}
			if dep == "testing" && p.ships() {
				t.Errorf("%s reaches testing: test code must not ship", p.ImportPath)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if p.Name != "main" && !strings.HasPrefix(p.Doc, "Package "+p.Name+" ") {
			t.Errorf("%s: no comment that begins %q", p.ImportPath, "Package "+p.Name)
		}
	}
}

// TestPureSyntax bans goroutines and channels where decisions are made.
func TestPureSyntax(t *testing.T) {
	for _, p := range packages(t) {
		if !p.pure() {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
					t.Errorf("%s: a pure package has no goroutine and no channel", fset.Position(n.Pos()))
				}
				return true
			})
		}
	}
}

// Limits of the packages that ship. Generated code is not counted.
const (
	maxCodeLines = 2000 // lines with code: neither blank nor comments alone
	maxMethods   = 60
)

// TestPackageSizes limits what a reader has to know of one package, and of one type.
func TestPackageSizes(t *testing.T) {
	check := func(name string, n, limit int, unit string) {
		if n > limit {
			t.Errorf("%s has %d %s, at most %d are allowed: split it", name, n, unit, limit)
		}
	}
	for _, p := range packages(t) {
		if !p.ships() {
			continue
		}
		lines, methods := sizeOf(t, p)
		check(p.dir(), lines, maxCodeLines, "lines of code")
		for name, n := range methods {
			check(p.dir()+"."+name, n, maxMethods, "methods")
		}
	}
}

// sizeOf counts the lines of code of a package, and the methods of each of its types.
func sizeOf(t *testing.T, p pkg) (lines int, methods map[string]int) {
	t.Helper()
	methods = map[string]int{}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			continue
		}
		lines += codeLines(t, filepath.Join(p.Dir, name))
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[receiverOf(fn)]++
			}
		}
	}
	return lines, methods
}

// codeLines counts the lines of a file that have code.
func codeLines(t *testing.T, name string) int {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file := fset.AddFile(name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]struct{}{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // a line break
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(literal, "\n") {
			lines[first+i] = struct{}{}
		}
	}
}

// receiverOf returns the type of the receiver of a method.
func receiverOf(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	switch generic := expr.(type) {
	case *ast.IndexExpr:
		expr = generic.X
	case *ast.IndexListExpr:
		expr = generic.X
	}
	name, ok := expr.(*ast.Ident)
	if !ok {
		return ""
	}
	return name.Name
}
