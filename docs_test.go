package tranche_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	config "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/test/constant"
	"github.com/tranche-dev/tranche/test/document"
)

// TestDocumentLinks follows each link of the documents to a file, a directory or a heading of the repository.
func TestDocumentLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for file, text := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(withoutBlocks(text), -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", file, found[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s: %s has no such heading", file, found[1], target)
			}
		}
	}
}

// TestDocumentLineLength: a paragraph has lines of at most 100 characters, so that a difference shows what has changed. The reference is generated.
func TestDocumentLineLength(t *testing.T) {
	const most = 100
	for file, text := range documents(t) {
		if strings.HasPrefix(file, "docs/reference/") {
			continue
		}
		for line := range strings.SplitSeq(withoutBlocks(text), "\n") {
			isFree := strings.HasPrefix(strings.TrimSpace(line), "|") || !strings.Contains(strings.TrimSpace(line), " ") || strings.HasPrefix(line, "    ")
			if n := utf8.RuneCountInString(line); n > most && !isFree {
				t.Errorf("%s: a line has %d characters, more than %d: %s", file, n, most, line)
			}
		}
	}
}

// documents returns the text of each document by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := document.Files(".")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[file] = read(t, file)
	}
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func withoutBlocks(text string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
}

// anchors returns the anchors that GitHub gives the headings of a document.
func anchors(t *testing.T, file string) []string {
	t.Helper()
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var all []string
	for _, found := range heading.FindAllStringSubmatch(withoutBlocks(read(t, file)), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return all
}

// TestDocumentDecisions keeps decision records reachable under one name: each has the number of its heading.
func TestDocumentDecisions(t *testing.T) {
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("list the decision records: %v, %d found", err, len(files))
	}
	for _, file := range files {
		number := strings.TrimLeft(filepath.Base(file)[:4], "0")
		if !strings.HasPrefix(read(t, file), "# "+number+". ") {
			t.Errorf("%s does not begin with %q", file, "# "+number+". ")
		}
	}
}

// TestDocumentConfiguration loads each YAML block that is neither a manifest, a list of alerts nor a workflow as the configuration of the manager.
func TestDocumentConfiguration(t *testing.T) {
	const header = "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\n"
	loaded := 0
	for _, block := range blocks(t, "yaml") {
		var list []any
		var object struct {
			APIVersion, Kind string
			Jobs             map[string]any
		}
		switch {
		case yaml.Unmarshal([]byte(block.Text), &list) == nil:
			continue
		case yaml.Unmarshal([]byte(block.Objects()[0]), &object) == nil && object.Jobs != nil:
			continue // a workflow of GitHub
		case object.Kind == "":
			block.Text = header + block.Text
		case object.Kind != "Configuration":
			continue
		}
		loaded++
		if _, err := config.Decode([]byte(block.Text)); err != nil {
			t.Errorf("%s: %v", &block, err)
		}
	}
	if loaded < 3 {
		t.Errorf("%d blocks are configurations, want at least 3", loaded)
	}
}

// TestDocumentTimeline reads each block of JSON as the timeline of a JobSet.
func TestDocumentTimeline(t *testing.T) {
	all := blocks(t, "json")
	for _, block := range all {
		var timeline apis.Timeline
		decoder := json.NewDecoder(strings.NewReader(block.Text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&timeline); err != nil || len(timeline.Stages) == 0 {
			t.Errorf("%s: %v, %d stages", &block, err, len(timeline.Stages))
		}
	}
	if len(all) == 0 {
		t.Error("the documents have no timeline")
	}
}

func blocks(t *testing.T, language string) []document.Block {
	t.Helper()
	all, err := document.Blocks(".")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(b document.Block) bool { return b.Language != language })
}

// TestDocumentLanguages lets no block escape the tests by an unknown language.
func TestDocumentLanguages(t *testing.T) {
	all, err := document.Blocks(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range all {
		if !slices.Contains([]string{"", "sh", "yaml", "json", "mermaid", "scenario", "csv"}, block.Language) {
			t.Errorf("%s: no test reads blocks of language %q", &block, block.Language)
		}
	}
}

// TestDocumentCommandLines checks that each line of a command begins with a program or continues the line before: who wraps a paragraph may not join commands.
func TestDocumentCommandLines(t *testing.T) {
	programs := []string{"bin/tranche", "chmod", "curl", "go", "helm", "kubectl", "ln", "make", "printf", "source", "tranche"}
	quoted := regexp.MustCompile(`'[^']*'`)
	joined := regexp.MustCompile(`[^|;&(\s]\s+(bin/tranche|helm|kubectl|make) [a-z]`)
	for _, block := range blocks(t, "sh") {
		continues := false
		for line := range strings.Lines(block.Text) {
			line, _, _ = strings.Cut(" "+strings.TrimSpace(line), " #")
			if words := strings.Fields(line); !continues && len(words) > 0 {
				if !slices.Contains(programs, words[0]) {
					t.Errorf("%s: %q begins with no program of %v", &block, line, programs)
				}
				if joined.MatchString(quoted.ReplaceAllString(line, "''")) {
					t.Errorf("%s: %q has two commands", &block, line)
				}
			}
			continues = strings.HasSuffix(line, "\\")
		}
	}
}

// TestDocumentMakeTargets checks that the Makefile has each target that the documents name.
func TestDocumentMakeTargets(t *testing.T) {
	var targets []string
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, found[1])
	}
	named := regexp.MustCompile("(?m)(?:^\\s*|`)make ([a-z0-9-]+)")
	for file, text := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(targets, found[1]) {
				t.Errorf("%s names make %s, which the Makefile does not have", file, found[1])
			}
		}
	}
}

// TestDocumentPaths checks that the files and directories exist that the documents name in code.
func TestDocumentPaths(t *testing.T) {
	named := regexp.MustCompile("(?m)[\\s`](?:\\.{1,2}/)?((?:admission|apis|charts|cmd|config|controllers|lifecycle|queue|simulator|test|tools)/[A-Za-z0-9._/-]*[A-Za-z0-9])")
	for file, text := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(found[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", file, found[1])
			}
		}
	}
}

// TestDocumentMetrics compares the metrics in documents and alerts with the list of all metrics.
func TestDocumentMetrics(t *testing.T) {
	const reference = "docs/reference/metrics.md"
	known := read(t, reference)
	named := regexp.MustCompile(`\b(?:tranche|kueue)_[a-z_]+[a-z]\b`)
	for file, text := range documents(t) {
		for _, metric := range named.FindAllString(text, -1) {
			if !strings.Contains(known, "`"+metric+"`") && file != reference {
				t.Errorf("%s names the metric %s, which is not in %s", file, metric, reference)
			}
		}
	}
}

// TestDocumentReasons checks that the document about troubleshooting has a row for each reason of a condition or an Event, each check of the
// engine and each policy that rejects writes.
func TestDocumentReasons(t *testing.T) {
	const file = "docs/troubleshooting.md"
	text := read(t, file)
	ours := sources(t)
	for what, pattern := range map[string]string{
		"reason of gangs or groups":  `(?m)^\tG(?:ang|roup)[A-Z]\w* += "([A-Z]\w+)"`,
		"other reason":               `(?m)^(?:\t|const )(?:reason[A-Z]\w*|[A-Z]\w*Reason) += "([A-Z]\w+)"`,
		"reason in place":            `\bReason: +"([A-Z]\w+)"`,
		"reason of lost fields":      `(?m)^\tPruned[A-Z]\w* += "([A-Z]\w+)"`,
		"certainty of a start":       `\bCertainty += "([A-Z]\w+)"`,
		"reason of a gang of pods":   `Message\{"([A-Z]\w+)"`,
		"reason of an Event":         `(?:normal|warning)\("([A-Z]\w+)", "`,
		"reason of a LocalQueue":     `Activity\{(?:Status: )?metav1\.Condition\w+, (?:Reason: )?"([A-Z]\w+)"`,
		"check of the engine":        `(?:Check: |[mM]isconfigured\(|[sS]uspended\(|newRefusal\()"([A-Z]\w+)"`,
		"check with a constant name": constantsOf(ours, `(?:Check: |[mM]isconfigured\(|[sS]uspended\(|newRefusal\()([a-z]\w+)[,}]`),
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(ours, -1)
		if len(found) == 0 {
			t.Errorf("no %s in the code: correct the pattern", what)
		}
		for _, match := range found {
			if !strings.Contains(text, "`"+match[1]+"`") {
				t.Errorf("%s has no row for %s %s", file, what, match[1])
			}
		}
	}
	for name, reason := range reasonsOfKueue(t) {
		if regexp.MustCompile(`\bkueue\.`+name+`\b`).MatchString(ours) && !strings.Contains(text, "`"+reason+"`") {
			t.Errorf("%s has no row for reason %s of Kueue", file, reason)
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (\S+)`).FindAllStringSubmatch(policies(t), -1) {
		if match[1] != "tranche-keep-parameters" && !strings.Contains(text, "`"+match[1]+"`") {
			t.Errorf("%s has no row for policy %s", file, match[1])
		}
	}
}

// reasonsOfKueue returns the reasons among the constants of Kueue's API by their names.
func reasonsOfKueue(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "sigs.k8s.io/kueue/apis/kueue/v1beta2").Output()
	if err != nil {
		t.Fatal(err)
	}
	reasons := constant.Strings(t, strings.TrimSpace(string(dir)))
	maps.DeleteFunc(reasons, func(name, _ string) bool {
		isOther := slices.Contains([]string{
			"WorkloadAnnotation", "WorkloadBlockedOnPreemptionGates", "WorkloadDeactivationTarget", "WorkloadPodsReady", "WorkloadPriorityClassKind",
		}, name)
		return isOther || !strings.HasPrefix(name, "Workload") && !strings.Contains(name, "Reason")
	})
	if len(reasons) < 50 {
		t.Errorf("%d reasons of Kueue, want 50 at least: %v", len(reasons), reasons)
	}
	return reasons
}

// constantsOf returns a pattern of the declarations of all constants that another pattern finds.
func constantsOf(code, pattern string) string {
	var names []string
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(code, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return `\b(?:` + strings.Join(slices.Compact(names), "|") + `) += "([A-Z]\w+)"`
}

// policies returns all admission policies.
func policies(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("config/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		b.WriteString(read(t, file))
	}
	return b.String()
}
