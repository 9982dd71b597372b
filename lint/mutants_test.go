package lint_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/manifest"
)

// TestMutants replaces each value of each object of testdata by values of other types. None makes lint fail.
func TestMutants(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	mutants := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := manifest.Read(file, content)
		for _, o := range objects {
			content, err := o.Content()
			if err != nil {
				t.Fatal(err)
			}
			mutate(content, func() {
				mutants++
				if metadata, isObject := content["metadata"].(map[string]any); isObject {
					if _, hasName := metadata["name"].(string); hasName {
						metadata["name"] = fmt.Sprintf("mutant-%d", mutants)
					}
				}
				raw, err := json.Marshal(content)
				if err != nil {
					t.Fatal(err)
				}
				text.Write(append(raw, "\n---\n"...))
			})
		}
	}
	objects, unreadable := manifest.Read("mutants", []byte(text.String()))
	result, err := lint.Run(objects, unreadable, lint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if mutants < 1000 || len(result.Findings) < mutants/2 {
		t.Errorf("%d mutants have %d findings", mutants, len(result.Findings))
	}
	lint.Upgrade("mutants", []byte(text.String()))
}

// mutate calls a function with each value below a value replaced, and restores the value.
func mutate(value any, call func()) {
	replacements := []any{nil, int64(-1), []any{nil}}
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			for _, other := range replacements {
				v[key] = other
				call()
			}
			v[key] = child
			mutate(child, call)
		}
	case []any:
		for i, child := range v {
			for _, other := range replacements {
				v[i] = other
				call()
			}
			v[i] = child
			mutate(child, call)
		}
	}
}
