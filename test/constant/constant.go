// Package constant reads the string constants that a package declares from its source, so that a test of a list fails for what the list lacks.
package constant

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// Strings returns the exported string constants of the package in a directory by name.
func Strings(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		tb.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, f)
	}
	// Nothing is imported: only constants of the package itself count.
	lenient := types.Config{Error: func(error) {}, Importer: noImports{}, IgnoreFuncBodies: true}
	pkg, _ := lenient.Check(dir, set, files, nil)
	all := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok && c.Exported() && c.Val().Kind() == constant.String {
			all[name] = constant.StringVal(c.Val())
		}
	}
	if len(all) == 0 {
		tb.Fatalf("%s declares no string constants", dir)
	}
	return all
}

// noImports finds no package.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("package %s is not read", path)
}
