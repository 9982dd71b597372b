// Package tranche_test holds only the rules of this repository, as tests.
package tranche_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tranche-dev/tranche/"

// layers lists, for each directory, what it and those below it may import of this module besides themselves. The row of the nearest directory counts; one that
// ends in /* is for each of its children, which are strangers to each other. An entry stands for a directory and those below, and with /* for those below alone.
// That the packages of one row have an order among each other is up to the compiler, which allows no cycle.
var layers = map[string]string{
	"apis":      "",
	"queue":     "apis",
	"admission": "apis queue",
	// The engine is no part of what comes next for an object.
	"lifecycle": "apis admission/*",
	// manifest reads what users write, and snapshot holds the objects that the verbs answer about.
	"manifest": "",
	"snapshot": "apis manifest",
	"config":   "",
	// These answer from objects.
	"simulator": "apis queue admission lifecycle manifest snapshot",
	"lint":      "apis admission lifecycle manifest snapshot config",
	"plan":      "apis admission lifecycle snapshot simulator",
	"shadow":    "apis admission/stageplan snapshot simulator/replay",
	"dashboard": "apis queue admission/* lifecycle",
	// Its children read a cluster, and serve the answers and the page.
	"dashboard/*": "apis admission/* lifecycle/podstate dashboard snapshot",
	// Those that are named are no controllers: they know for the controllers how to decide, report, write and watch.
	"controllers/*": "apis queue admission lifecycle controllers/engine controllers/events controllers/metrics controllers/gangobjects " +
		"controllers/groupstart/barrier controllers/internal controllers/apiwatch controllers/webserver",
	// Two simulate and show what is in the cache.
	"controllers/forecast":  "apis queue admission lifecycle snapshot simulator controllers/metrics controllers/internal",
	"controllers/dashboard": "apis admission dashboard controllers/engine controllers/internal controllers/webserver",
	"cmd":                   "apis queue admission lifecycle manifest snapshot simulator lint plan shadow dashboard controllers config",
	"test":                  "apis queue admission lifecycle manifest snapshot simulator lint plan shadow dashboard",
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

// row returns the row of layers for a directory of this module, and the directory for which it stands.
func row(dir string) (allowed []string, own string, ok bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		for _, key := range []string{d, path.Dir(d) + "/*"} {
			if entries, ok := layers[key]; ok {
				return strings.Fields(entries), d, true
			}
		}
	}
	return nil, "", false
}

// covers reports whether an entry of a row stands for dir.
func covers(entry, dir string) bool {
	parent, isForChildren := strings.CutSuffix(entry, "/*")
	return strings.HasPrefix(dir, parent+"/") || dir == entry && !isForChildren
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
		allowed, own, ok := row(p.dir())
		if !ok {
			t.Errorf("%s: in no layer; give its directory a row in layers", p.ImportPath)
		}
		allowed = append(allowed, own)
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
