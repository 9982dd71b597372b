package lint_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/lint"
)

// TestSARIF validates the output with the schema of SARIF 2.1.0, which is among the modules of the linters.
func TestSARIF(t *testing.T) {
	download := exec.Command("go", "mod", "download", "-json", "-modfile=tools/golangci/go.mod", "github.com/securego/gosec/v2")
	download.Dir, download.Env = "..", append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	if err != nil {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "report", "sarif", "testdata", "sarif-schema-2.1.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := &sarifSchema{}
	if err := json.Unmarshal(text, &s.root); err != nil {
		t.Fatal(err)
	}
	if problems := s.check("", s.root, map[string]any{"version": "2.1.0", "runs": []any{map[string]any{"results": []any{map[string]any{"level": "fatal"}}}}}); len(problems) != 3 {
		t.Fatalf("the check of a wrong log returned %q, want 3 problems", problems)
	}
	for _, file := range []string{"testdata/old.yaml", "testdata/text.yaml", "testdata/engine.yaml", "testdata/same.yaml"} {
		result := run(t, file)
		for i := range result.Findings {
			result.Findings[i].File = "a directory:/" + filepath.Base(file) // must be a URI nevertheless
		}
		for _, r := range []*lint.Result{result, {}} {
			var out bytes.Buffer
			if err := lint.WriteSARIF(&out, r); err != nil {
				t.Fatal(err)
			}
			var log any
			if err := json.Unmarshal(out.Bytes(), &log); err != nil {
				t.Fatal(err)
			}
			for _, problem := range s.check("", s.root, log) {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
}

// A sarifSchema checks values by those keywords of JSON Schema that the schema of SARIF uses.
type sarifSchema struct{ root map[string]any }

// check returns the problems of a value, each with its path.
func (s *sarifSchema) check(path string, schema map[string]any, value any) []string {
	var problems []string
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		want := schema[keyword]
		isValid := true
		switch keyword {
		case "$ref":
			name := strings.TrimPrefix(want.(string), "#/definitions/")
			problems = append(problems, s.check(path, s.root["definitions"].(map[string]any)[name].(map[string]any), value)...)
		case "properties", "items", "additionalProperties":
			problems = append(problems, s.checkChildren(path, keyword, schema, value)...)
		case "anyOf", "oneOf":
			isValid = slices.ContainsFunc(want.([]any), func(one any) bool { return len(s.check(path, one.(map[string]any), value)) == 0 })
		case "required":
			object, isObject := value.(map[string]any)
			isValid = !isObject || !slices.ContainsFunc(want.([]any), func(name any) bool { return object[name.(string)] == nil })
		case "type":
			isValid = slices.ContainsFunc(typesOf(value), func(name string) bool { return want == name || isAmong(want, name) })
		case "enum":
			isValid = slices.Contains(want.([]any), value)
		case "minimum":
			isValid = value.(float64) >= want.(float64)
		case "maximum":
			isValid = value.(float64) <= want.(float64)
		case "minItems":
			isValid = len(value.([]any)) >= int(want.(float64))
		case "uniqueItems":
			isValid = want == false || isUnique(value.([]any))
		case "pattern":
			isValid = regexp.MustCompile(want.(string)).MatchString(value.(string))
		case "format":
			_, err := url.Parse(value.(string))
			isValid = err == nil && !strings.Contains(value.(string), " ")
		case "description", "default", "title", "id", "$schema", "definitions":
		default:
			problems = append(problems, "the keyword "+keyword+" is not checked")
		}
		if !isValid {
			problems = append(problems, fmt.Sprintf("%s is %v: %s %v", path, value, keyword, want))
		}
	}
	return problems
}

func (s *sarifSchema) checkChildren(path, keyword string, schema map[string]any, value any) []string {
	var problems []string
	if list, isList := value.([]any); isList && keyword == "items" {
		for i, item := range list {
			problems = append(problems, s.check(path+"/"+strconv.Itoa(i), schema[keyword].(map[string]any), item)...)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	object, _ := value.(map[string]any)
	for name, child := range object {
		of, isKnown := properties[name].(map[string]any)
		switch {
		case isKnown && keyword == "properties":
			problems = append(problems, s.check(path+"/"+name, of, child)...)
		case !isKnown && keyword == "additionalProperties" && schema[keyword] == false:
			problems = append(problems, path+" has no property "+name)
		}
	}
	return problems
}

func isAmong(list any, name string) bool {
	names, isList := list.([]any)
	return isList && slices.Contains(names, any(name))
}

// typesOf returns the types of JSON Schema that a value has.
func typesOf(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{"string"}
	case bool:
		return []string{"boolean"}
	case []any:
		return []string{"array"}
	case map[string]any:
		return []string{"object"}
	case float64:
		if v == float64(int(v)) {
			return []string{"number", "integer"}
		}
		return []string{"number"}
	}
	return nil
}

func isUnique(list []any) bool {
	for i := range list {
		if slices.ContainsFunc(list[:i], func(other any) bool { return reflect.DeepEqual(other, list[i]) }) {
			return false
		}
	}
	return true
}
