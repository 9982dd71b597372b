package tranche_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestVersionIsOne checks that manifests, tests and the changelog name the version of charts/tranche/Chart.yaml. A release replaces it in all that it writes.
func TestVersionIsOne(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(read(t, "charts/tranche/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version == "" || chart.AppVersion != "v"+chart.Version {
		t.Errorf("the chart has version %q and appVersion %q, want the same with a leading v", chart.Version, chart.AppVersion)
	}
	files, err := exec.Command("git", "grep", "-lE", `ghcr\.io/tranche-dev/tranche:v[0-9]`, "--", "*.yaml").Output()
	if err != nil {
		t.Fatalf("find the image: %v", err)
	}
	image := regexp.MustCompile(`ghcr\.io/tranche-dev/tranche:(v[0-9][0-9A-Za-z.-]*)`)
	for file := range strings.FieldsSeq(string(files)) {
		for _, found := range image.FindAllStringSubmatch(read(t, file), -1) {
			if found[1] != chart.AppVersion {
				t.Errorf("%s has version %s of the image, want %s as in the chart", file, found[1], chart.AppVersion)
			}
		}
	}
	if !regexp.MustCompile(`\b` + regexp.QuoteMeta(chart.Version) + `\b`).MatchString(read(t, "CHANGELOG.md")) {
		t.Errorf("CHANGELOG.md does not name version %s", chart.Version)
	}
}
