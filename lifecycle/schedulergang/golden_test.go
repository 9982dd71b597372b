package schedulergang_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// providers returns the providers of the golden files, by file name.
func providers() map[string]schedulergang.Provider {
	return map[string]schedulergang.Provider{
		"kube-v1alpha2": schedulergang.Kube{Version: schedulergang.V1alpha2},
		"kube-v1beta1":  schedulergang.Kube{Version: schedulergang.V1beta1},
		"coscheduling":  schedulergang.Coscheduling{TimeoutSeconds: new(int32(60))},
		"volcano":       schedulergang.Volcano{Queue: "research"},
		"koordinator":   schedulergang.Koordinator{TimeoutSeconds: new(int32(600))},
	}
}

// plan returns the plan of a JobSet that has a valid one.
func plan(t *testing.T, js *jobsetapi.JobSet) *stageplan.Plan {
	t.Helper()
	p, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatalf("stageplan.New: %v", err)
	}
	return p
}

// example reads the JobSet of an example, and the comment above it.
func example(t *testing.T, dir string) (js *jobsetapi.JobSet, comment string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "jobset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		comment += line
	}
	js = &jobsetapi.JobSet{}
	if err := yaml.UnmarshalStrict(data, js); err != nil {
		t.Fatal(err)
	}
	return js, comment
}

func examples(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("testdata", "*", "jobset.yaml"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for i := range dirs {
		dirs[i] = filepath.Dir(dirs[i])
	}
	return dirs
}

// show formats all that a provider makes of a JobSet.
func show(t *testing.T, js *jobsetapi.JobSet, provider schedulergang.Provider) string {
	t.Helper()
	p := plan(t, js)
	gangSet, err := schedulergang.New(js, p, provider)
	if err != nil {
		return fmt.Sprintf("# refused: %v\n", err)
	}
	var b strings.Builder
	for s, stage := range p.Stages {
		objects := provider.Objects(gangSet, s)
		fmt.Fprintf(&b, "# before stage %q: %d objects\n", stage.Name, len(objects))
		for _, object := range objects {
			b.WriteString("---\n" + toYAML(t, object))
		}
	}
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		for k := range job.Replicas {
			fmt.Fprintf(&b, "---\n# pods of Job %s-%s-%d\n%s", js.Name, job.Name, k, toYAML(t, gangSet.PodFields(provider, job.Name, k)))
		}
	}
	for _, userGang := range gangSet.UserGangs {
		fmt.Fprintf(&b, "# the pods of ReplicatedJob %q are in the user-created gang %q\n", userGang.ReplicatedJob, userGang.Name)
	}
	return b.String()
}

func toYAML(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestGolden shows what each provider makes of the examples of the enhancement proposal and of the documents of the schedulers.
func TestGolden(t *testing.T) {
	for _, dir := range examples(t) {
		for name, provider := range providers() {
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) {
				js, comment := example(t, dir)
				got := comment + "# As provider " + name + " has it.\n" + show(t, js, provider)
				path := filepath.Join(dir, name+".yaml")
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("the golden differs, run make golden and review the change: -want +got\n%s", diff)
				}
			})
		}
	}
}

// TestKubeTypes decodes the objects for Kubernetes 1.36 with its own types, which must have every field and lose none.
func TestKubeTypes(t *testing.T) {
	for _, dir := range examples(t) {
		js, _ := example(t, dir)
		provider, p := schedulergang.Kube{Version: schedulergang.V1alpha2}, plan(t, js)
		gangSet, err := schedulergang.New(js, p, provider)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		for s := range p.Stages {
			for _, object := range provider.Objects(gangSet, s) {
				var typed any = &schedulingv1alpha2.PodGroup{}
				if object.Kind == "Workload" {
					typed = &schedulingv1alpha2.Workload{}
				}
				want := fields(t, object)
				decoder := json.NewDecoder(bytes.NewReader(toJSON(t, object)))
				decoder.DisallowUnknownFields()
				if err := decoder.Decode(typed); err != nil {
					t.Errorf("%s: decode %s %s: %v", dir, object.Kind, object.Name, err)
				}
				if diff := cmp.Diff(want["spec"], withoutNull(fields(t, typed)["spec"])); diff != "" {
					t.Errorf("%s: %s %s: -made +read\n%s", dir, object.Kind, object.Name, diff)
				}
			}
		}
	}
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fields(t *testing.T, v any) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(toJSON(t, v), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// withoutNull removes fields that are null: those without omitempty, for which null and absence mean the same.
func withoutNull(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key] = withoutNull(value); v[key] == nil {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNull(v[i])
		}
	}
	return v
}
