package tranche_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	config "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// kueueTable is the document with one row for every field, label and annotation of Kueue.
const kueueTable = "docs/migrate-from-kueue.md"

// A kueueRow is a row of the table: what becomes of a field, label or annotation, and why.
type kueueRow struct{ name, verdict, text string }

// covers reports whether the row is about a field. A row that ends in .* is about all fields below.
func (r kueueRow) covers(name string) bool {
	prefix, isWildcard := strings.CutSuffix(r.name, ".*")
	return r.name == name || isWildcard && (name == prefix || strings.HasPrefix(name, prefix+".") || strings.HasPrefix(name, prefix+"[]."))
}

// TestKueueTable compares the table with Kueue's types and constants, and the messages in it with the code.
func TestKueueTable(t *testing.T) {
	rows := kueueRows(t)
	names := slices.Concat(kueueFields(), kueueKeys(t))
	for _, name := range names {
		var by []string
		for _, row := range rows {
			if row.covers(name) {
				by = append(by, row.name)
			}
		}
		if len(by) != 1 {
			t.Errorf("%s has %d rows in %s %q, want 1", name, len(by), kueueTable, by)
		}
	}
	ours := sources(t)
	for _, row := range rows {
		if !slices.ContainsFunc(names, row.covers) {
			t.Errorf("%s has a row for %s, which Kueue does not have", kueueTable, row.name)
		}
		switch row.verdict {
		case "honoured", "meaningless":
		case "refused":
			checkRefusal(t, row, ours)
		default:
			t.Errorf("the row for %s in %s says %q, want honoured, refused or meaningless", row.name, kueueTable, row.verdict)
		}
	}
}

// checkRefusal looks the message of a row up in the code. Dots stand for what a message is about.
func checkRefusal(t *testing.T, row kueueRow, ours string) {
	t.Helper()
	message := regexp.MustCompile("`([^`]+)`").FindStringSubmatch(row.text)
	if message == nil {
		t.Errorf("the row for %s in %s has no message", row.name, kueueTable)
		return
	}
	if field, isOurs := strings.CutPrefix(row.name, "Configuration."); isOurs {
		checkUnknownField(t, strings.TrimSuffix(field, ".*"), message[1])
		return
	}
	for part := range strings.SplitSeq(message[1], "…") {
		if part = strings.TrimSpace(part); !strings.Contains(ours, part) {
			t.Errorf("the row for %s in %s has the message %q, which Tranche does not write", row.name, kueueTable, part)
		}
	}
}

// checkUnknownField reads a configuration that has a field of Kueue's.
func checkUnknownField(t *testing.T, field, want string) {
	t.Helper()
	var value any = map[string]any{}
	for _, part := range slices.Backward(strings.Split(field, ".")) {
		name, isList := strings.CutSuffix(part, "[]")
		if isList {
			value = []any{value}
		}
		value = map[string]any{name: value}
	}
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Decode(append([]byte("apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\n"), content...)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a configuration with %s: got error %v, want %q", field, err, want)
	}
}

func kueueRows(t *testing.T) []kueueRow {
	t.Helper()
	text, err := os.ReadFile(kueueTable)
	if err != nil {
		t.Fatal(err)
	}
	const heading = "\n## Field by field\n"
	_, tables, isThere := strings.Cut(string(text), heading)
	if !isThere {
		t.Fatalf("%s has no heading %q", kueueTable, heading)
	}
	var rows []kueueRow
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		names := strings.ReplaceAll(cells[0], "`", "")
		for name := range strings.SplitSeq(names, ",") {
			rows = append(rows, kueueRow{strings.TrimSpace(name), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		}
	}
	return rows
}

// kueueFields are the fields of Kueue's objects and configuration that hold a value of their own.
func kueueFields() []string {
	var all []string
	for _, object := range []any{
		kueue.ClusterQueue{},
		kueue.LocalQueue{},
		kueue.Cohort{},
		kueue.ResourceFlavor{},
		kueue.AdmissionCheck{},
		kueue.Workload{},
		kueue.WorkloadPriorityClass{},
		kueue.Topology{},
		kueue.ProvisioningRequestConfig{},
		kueue.MultiKueueConfig{},
		kueue.MultiKueueCluster{},
		kueueconfig.Configuration{},
	} {
		kind := reflect.TypeOf(object)
		all = addKueueFields(all, kind.Name(), kind)
	}
	return all
}

func addKueueFields(all []string, path string, of reflect.Type) []string {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		if of.Kind() == reflect.Slice {
			path += "[]"
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || !strings.HasPrefix(of.PkgPath(), "sigs.k8s.io/kueue/") {
		return append(all, strings.TrimSuffix(path, "[]"))
	}
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "metadata" || field.Name == "TypeMeta":
		case strings.Contains(options, "inline"):
			all = addKueueFields(all, path, field.Type)
		default:
			all = addKueueFields(all, path+"."+name, field.Type)
		}
	}
	return all
}

// kueueKeys are the labels, annotations, gates and finalizers that Kueue's code names.
func kueueKeys(t *testing.T) []string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatalf("locate the source of Kueue: %v", err)
	}
	var keys []string
	for _, of := range []string{"apis/kueue/v1beta2", "pkg/constants", "pkg/controller/constants", "pkg/controller/jobs/job", "pkg/controller/jobs/pod/constants", "pkg/workloadslicing"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), of, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no source of Kueue in %s: %v", of, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				keys = append(keys, kueueKeysOf(t, file)...)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

var kueueKey = regexp.MustCompile(`^([a-z]+\.)?kueue\.x-k8s\.io/[a-z0-9-]*$`)

func kueueKeysOf(t *testing.T, file string) (keys []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, value := range spec.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			if key, err := strconv.Unquote(literal.Value); err == nil && kueueKey.MatchString(key) {
				keys = append(keys, key)
			}
		}
		return true
	})
	return keys
}

// sources has what Tranche may tell a user: its code and its admission policies. Line breaks of literals are taken out.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"admission", "apis", "controllers", "lifecycle", "config/policies", "config/crd"} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	joined := regexp.MustCompile(`(["'])\s*\+\s*(["'])`).ReplaceAllString(all.String(), "")
	return strings.ReplaceAll(joined, `\"`, `"`)
}
