package tranche_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plainWords lists phrases that name no actor, or stand for a standard term, with what to write instead.
var plainWords = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b([Nn]o|[Ss]ome|[Aa]ny|[Ee]very)body\b`), "name the actor"},
	{regexp.MustCompile(`\b[Ww]hoever\b`), "name the actor"},
	{regexp.MustCompile(`(^|[.:;|(] ?)\s*Who\b`), `write "A stage that ..." or "If a user ..."`},
	{regexp.MustCompile(`\b(those|all) who\b`), "write the noun"},
	{regexp.MustCompile(`\btells? (whether|that|what|how|of|who|which|why|since|when)\b`), `write "reports whether" or "describes"`},
	{regexp.MustCompile(`\banew\b`), `write "again" or "recreate"`},
	{regexp.MustCompile(`\b[Mm]end(s|ed|ing|able)?\b`), `write "fix"`},
	{regexp.MustCompile(`\b(is|are|was|were|be) over\b`), `write "finished", "terminated" or "expired"`},
	{regexp.MustCompile(`\blet go\b`), `write "ungate", "release" or "remove"`},
	{regexp.MustCompile(`\bfor ever\b`), `write "forever" or "indefinitely"`},
	{regexp.MustCompile(`\bany more\b`), `write "no longer"`},
	{regexp.MustCompile(`\b(what|whatever) (there is|is there)\b`), `write "existing objects" or "current state"`},
	{regexp.MustCompile(`\b(find|finds|finding|found) out\b`), `write "determine" or "compute"`},
	{regexp.MustCompile(`\bc[oa]m(e|es|ing) to (rest|its end|their end|the end)\b`), `write "become idle" or "finish"`},
	{regexp.MustCompile(`\bhear(s|d)? (of|that|this|it)\b`), `write "observe"`},
	{regexp.MustCompile(`\bon (its|their|the) way out\b`), `write "being evicted" or "terminating"`},
	{regexp.MustCompile(`\bin vain\b`), `write "without success"`},
	{regexp.MustCompile(`\bwish of (its|the) user\b`), `write "requested by the user"`},
	{regexp.MustCompile(`\b(falls?|comes?) free\b`), `write "is released"`},
	{
		regexp.MustCompile(`\b(pledg(e|es|ed|ing)|census|crowds?|graves?|tenures?|belongings|takings|prospects?|appointments?|agenda)\b`),
		"write the standard term",
	},
}

// Comments, strings, names of tests, scenarios and documents use plain words and standard terms.
func TestPlainWords(t *testing.T) {
	files, err := exec.Command("git", "ls-files", "-z", "*.go", "*.md", "*.yaml", "*.txt", "Makefile", "Dockerfile", ":!:docs/reference", ":!:*zz_generated*",
		":!:config/crd", ":!:charts/tranche/files", ":!:"+"words_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		prose, err := proseOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for line, text := range prose {
			for _, word := range plainWords {
				if found := word.phrase.FindString(text); found != "" {
					t.Errorf("%s:%d: %q: %s", name, line, strings.TrimSpace(found), word.instead)
				}
			}
		}
	}
}

// proseOf returns the lines of a file that people read, by number: all of a document, a scenario or a manifest, the comments, strings and names of
// tests of a Go file, and the comments of anything else.
func proseOf(name string) (map[int]string, error) {
	switch filepath.Ext(name) {
	case ".go":
		return proseOfCode(name)
	case ".md", ".txt", ".yaml":
	default:
		return commentsOf(name)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	prose := map[int]string{}
	for i, line := range strings.Split(string(content), "\n") {
		prose[i+1] = strings.TrimLeft(line, "# ")
	}
	return prose, nil
}

func commentsOf(name string) (map[int]string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	prose := map[int]string{}
	for i, line := range strings.Split(string(content), "\n") {
		_, prose[i+1], _ = strings.Cut(line, "#")
	}
	return prose, nil
}

func proseOfCode(name string) (map[int]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	prose := map[int]string{}
	add := func(pos token.Pos, text string) {
		first := files.Position(pos).Line
		for i, line := range strings.Split(text, "\n") {
			prose[first+i] += "\n" + line
		}
	}
	for _, comment := range allComments(file) {
		add(comment.Pos(), strings.TrimPrefix(comment.Text, "//"))
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BasicLit:
			if node.Kind == token.STRING {
				add(node.Pos(), strings.Trim(node.Value, "`\""))
			}
		case *ast.FuncDecl:
			if strings.HasPrefix(node.Name.Name, "Test") {
				add(node.Pos(), inWords(node.Name.Name))
			}
		}
		return true
	})
	return prose, nil
}

// inWords returns the words of an identifier, in lower case.
func inWords(identifier string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(identifier, "$1 $2"))
}

func allComments(file *ast.File) (comments []*ast.Comment) {
	for _, group := range file.Comments {
		comments = append(comments, group.List...)
	}
	return comments
}
