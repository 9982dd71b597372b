package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/document"
)

// TestDocumentOverlay builds the overlay of the documents, which lies next to a copy of the repository: both places have its image.
func TestDocumentOverlay(t *testing.T) {
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := filepath.Join(dir, "overlay")
	if err := os.Mkdir(overlay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(repository, filepath.Join(dir, "tranche")); err != nil {
		t.Fatal(err)
	}
	built := 0
	for _, block := range blocks(t) {
		if block.Language != "yaml" || !strings.HasPrefix(block.Text, "apiVersion: kustomize.config.k8s.io/") || !strings.Contains(block.Text, "images:") {
			continue
		}
		built++
		if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(block.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := objects(t, kustomize(t, overlay))
		const want = "registry.example.com/tranche:dev"
		containers := field(t, got["Deployment/tranche-system/tranche-manager"], "spec", "template", "spec", "containers").([]any)
		if image := containers[0].(map[string]any)["image"]; image != want {
			t.Errorf("%s: the manager runs image %v, want %s", &block, image, want)
		}
		if image := field(t, got["ConfigMap/tranche-system/tranche-guards"], "data", "groupStartImage"); image != want {
			t.Errorf("%s: groups wait in image %v, want %s", &block, image, want)
		}
	}
	if built == 0 {
		t.Error("the documents have no overlay")
	}
}

// hookJob is how the Job that plans a change begins.
const hookJob = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: plan-queues\n"

// TestDocumentHook builds the directory of queues with a hook of Argo CD: the ConfigMap that the hook mounts is a hook of an earlier wave.
func TestDocumentHook(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("queues.yaml", run(t, "cat", "plan/testdata/quota-raised/queues.yaml"))
	for _, block := range blocks(t) {
		switch {
		case block.Language == "yaml" && strings.Contains(block.Text, "\nconfigMapGenerator:") && strings.Contains(block.Text, "argocd"):
			write("kustomization.yaml", block.Text)
		case block.Language == "yaml" && strings.HasPrefix(block.Text, hookJob):
			write("plan-queues.yaml", block.Text)
		}
	}
	got := objects(t, kustomize(t, dir))
	job := got["Job//plan-queues"]
	volume := field(t, job, "spec", "template", "spec", "volumes").([]any)[0].(map[string]any)
	configMap := got["ConfigMap//"+field(t, volume, "configMap", "name").(string)]
	for name, hook := range map[string]map[string]any{"the Job": job, "its ConfigMap": configMap} {
		if phase := field(t, hook, "metadata", "annotations", "argocd.argoproj.io/hook"); phase != "PreSync" {
			t.Errorf("%s is a hook of the phase %v, want PreSync", name, phase)
		}
	}
	if wave := field(t, configMap, "metadata", "annotations", "argocd.argoproj.io/sync-wave"); wave != "-1" {
		t.Errorf("the ConfigMap is in wave %v, want -1", wave)
	}
}

// TestDocumentFlux builds the directories of the Kustomizations of Flux: another quota gives the Job another ConfigMap, so that it runs again.
func TestDocumentFlux(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "applied"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range blocks(t) {
		switch {
		case block.Language != "yaml":
		case strings.Contains(block.Text, "files: [applied/queues.yaml]"):
			write("kustomization.yaml", block.Text)
		case strings.HasPrefix(block.Text, hookJob):
			write("plan-queues.yaml", block.Text)
		}
	}
	mounted := map[string]bool{}
	for _, change := range []string{"quota-raised", "quota-cut"} {
		queues := run(t, "cat", "plan/testdata/"+change+"/queues.yaml")
		write("applied/queues.yaml", queues)
		got := objects(t, kustomize(t, dir))
		volume := field(t, got["Job//plan-queues"], "spec", "template", "spec", "volumes").([]any)[0].(map[string]any)
		name := field(t, volume, "configMap", "name").(string)
		if mounts := field(t, got["ConfigMap//"+name], "data", "queues.yaml"); mounts != queues {
			t.Errorf("the Job mounts ConfigMap %s with %v", name, mounts)
		}
		mounted[name] = true
	}
	if len(mounted) != 2 {
		t.Errorf("the Job mounts %v: it does not change with the queues", mounted)
	}
}

// TestDocumentChartValues checks that the chart has each value that a command of helm in the documents sets.
func TestDocumentChartValues(t *testing.T) {
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(run(t, "cat", "charts/tranche/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	set := regexp.MustCompile(`--set[ =]([A-Za-z.]+)=`)
	commands := 0
	for _, block := range blocks(t) {
		for _, command := range block.Commands() {
			if !strings.HasPrefix(command, "helm ") {
				continue
			}
			commands++
			for _, found := range set.FindAllStringSubmatch(command, -1) {
				if _, exists, err := unstructured.NestedFieldNoCopy(values, strings.Split(found[1], ".")...); err != nil || !exists {
					t.Errorf("%s: %s is not in charts/tranche/values.yaml: %v", &block, found[1], err)
				}
			}
		}
	}
	if commands == 0 {
		t.Error("the documents have no command of helm")
	}
}

func blocks(t *testing.T) []document.Block {
	t.Helper()
	all, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
