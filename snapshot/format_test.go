package snapshot_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/snapshot"
)

// folder is a directory in memory.
type folder map[string]*bytes.Buffer

type openFile struct{ *bytes.Buffer }

func (openFile) Close() error { return nil }

func (f folder) create(name string) (io.WriteCloser, error) {
	f[name] = &bytes.Buffer{}
	return openFile{f[name]}, nil
}

func write(t *testing.T, s *snapshot.Snapshot, anonymizer *snapshot.Anonymizer) fstest.MapFS {
	t.Helper()
	created := folder{}
	if err := s.Write(created.create, anonymizer); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, content := range created {
		files[name] = &fstest.MapFile{Data: content.Bytes()}
	}
	return files
}

func read(t *testing.T, files fstest.MapFS) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// anySnapshot has two objects of every kind, with every field set.
func anySnapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	at := metav1.NewTime(time.Unix(1_800_000_000, 0).UTC())
	fill := randfill.NewWithSeed(14).NilChance(0).NumElements(1, 1).MaxDepth(14).Funcs(
		func(o *metav1.Time, _ randfill.Continue) { *o = at },
		func(o *metav1.MicroTime, _ randfill.Continue) { *o = metav1.NewMicroTime(at.Time) },
		func(o *metav1.FieldsV1, _ randfill.Continue) { o.SetRawString("{}") },
		func(o *resource.Quantity, _ randfill.Continue) { *o = *quantity("1") },
		func(o *intstr.IntOrString, _ randfill.Continue) { *o = intstr.FromInt32(1) },
		func(o *runtime.RawExtension, _ randfill.Continue) { o.Raw = []byte("{}") },
		func(o *corev1.ResourceList, _ randfill.Continue) {
			*o = corev1.ResourceList{"nvidia.com/gpu": *quantity("8"), corev1.ResourceCPU: *quantity("500m")}
		},
	)
	config, err := configapi.Decode([]byte("apiVersion: " + configapi.APIVersion + "\nkind: Configuration\nfairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshot.Snapshot{
		TakenAt: at.Time, Version: "v1", OnlyNamespaces: []string{"a", "b"}, Configuration: config,
		Gaps: []snapshot.Gap{{Resource: "nodes", Reason: "no right", Cure: "ask"}},
	}
	b := &snapshot.Builder{}
	for _, kind := range snapshot.Kinds() {
		if err := b.Begin(kind); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			object := snapshot.NewObject(kind)
			fill.Fill(object)
			object.SetName(name)
			object.SetNamespace(map[bool]string{true: "ns-" + name}[kind.IsNamespaced])
			object.SetLabels(map[string]string{"team": "secret-team", "kueue.x-k8s.io/queue-name": "secret-queue"})
			object.SetAnnotations(map[string]string{"note": "secret-note", "kubectl.kubernetes.io/last-applied-configuration": "secret-config", "tranche.dev/attempt": "3"})
			if err := b.Add(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Close(s); err != nil {
		t.Fatal(err)
	}
	all := b.Snapshot()
	all.Configuration = config
	return all
}

func TestRoundTripOfEveryKind(t *testing.T) {
	want := anySnapshot(t)
	files := write(t, want, nil)
	if diff := cmp.Diff(text(t, want), text(t, read(t, files))); diff != "" {
		t.Errorf("directory: -written +read\n%s", diff)
	}
	var archive bytes.Buffer
	if err := snapshot.Pack(&archive, files); err != nil {
		t.Fatal(err)
	}
	got, err := snapshot.ReadStream("a.tar.gz", &archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text(t, want), text(t, got)); diff != "" {
		t.Errorf("archive: -written +read\n%s", diff)
	}
}

// text shows a snapshot as JSON, because two equal quantities may differ in memory.
func text(t *testing.T, s *snapshot.Snapshot) string {
	t.Helper()
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A file of a snapshot must not have what tenants keep to themselves.
func TestFieldsThatDoNotDecideAreDropped(t *testing.T) {
	pod := corev1.PodSpec{
		NodeSelector: map[string]string{"kept": "selector"}, SchedulerName: "kept-scheduler", PriorityClassName: "kept-class", RuntimeClassName: new("kept-runtime"),
		ServiceAccountName: "dropped", Hostname: "dropped", Volumes: []corev1.Volume{{Name: "dropped"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("kept-claim")}},
		Tolerations:    []corev1.Toleration{{Key: "kept-toleration"}},
		Containers: []corev1.Container{{
			Name: "kept-container", Image: "dropped", Command: []string{"dropped"}, Args: []string{"dropped"}, WorkingDir: "dropped",
			Env: []corev1.EnvVar{{Name: "dropped", Value: "dropped"}}, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"kept/resource": *quantity("1")}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"dropped"}}}},
		}},
	}
	b := &snapshot.Builder{}
	for _, kind := range snapshot.Kinds() {
		if kind.GVK.Kind != "Job" {
			continue
		}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kept-name", Namespace: "kept-namespace", UID: "kept-uid", Labels: map[string]string{"dropped": "dropped", "job-name": "kept-label"},
				Annotations:   map[string]string{"a": "dropped", "kubectl.kubernetes.io/last-applied-configuration": "dropped", "tranche.dev/release": "kept-annotation"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "dropped"}},
			},
			Spec: batchv1.JobSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "dropped"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "dropped"}}, Spec: pod},
			},
		}
		before := job.DeepCopy()
		if err := b.Begin(kind); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(job); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, job); diff != "" {
			t.Errorf("the object has changed: -before +after\n%s", diff)
		}
	}
	file := string(write(t, b.Snapshot(), nil)["jobs.batch.jsonl"].Data)
	if strings.Contains(file, "dropped") {
		t.Errorf("kept what does not decide: %s", file)
	}
	for _, kept := range []string{
		"kept-name", "kept-namespace", "kept-uid", "kept-label", "kept-annotation", "selector", "kept-scheduler", "kept-class", "kept-runtime", "kept-claim",
		"kept-toleration", "kept-container", "kept/resource",
	} {
		if !strings.Contains(file, kept) {
			t.Errorf("%s is missing: %s", kept, file)
		}
	}
}

func TestBadSnapshots(t *testing.T) {
	cases := map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"another version": {
			func(f fstest.MapFS) { replace(f, "snapshot.json", "v1alpha1", "v9") },
			`snapshot.json: the format is "Snapshot" of "snapshot.tranche.dev/v9", this version of Tranche reads "Snapshot" of "snapshot.tranche.dev/v1alpha1": use the version`,
		},
		"half a directory": {func(f fstest.MapFS) { delete(f, "snapshot.json") }, "snapshot.json is missing, so that neither the version nor the time of the snapshot is known"},
		"an unknown file":  {func(f fstest.MapFS) { f["pods.txt"] = &fstest.MapFile{} }, "pods.txt is no file of a snapshot: remove it"},
		"an object given twice": {
			func(f fstest.MapFS) {
				line := firstLine(f["nodes.jsonl"].Data)
				f["nodes.jsonl"].Data = slices.Concat(line, line)
			},
			"Node a is given twice, in nodes.jsonl line 1 and in nodes.jsonl line 2: remove one",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files := write(t, anySnapshot(t), nil)
			c.change(files)
			if _, err := snapshot.ReadDir(files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func firstLine(content []byte) []byte { return content[:bytes.IndexByte(content, '\n')+1] }

func replace(files fstest.MapFS, name, old, with string) {
	files[name].Data = bytes.Replace(files[name].Data, []byte(old), []byte(with), 1)
}

const printed = `
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: b}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: a}}
---
# nothing but a comment
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadList
items:
- {metadata: {name: w, namespace: ns}}
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: ns}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tranche-manager, namespace: tranche-system}
data:
  config.yaml: |
    apiVersion: config.tranche.dev/v1alpha1
    kind: Configuration
    stageAdmission: Greedy
`

func TestManifests(t *testing.T) {
	var inJSON bytes.Buffer
	for document := range strings.SplitSeq(printed, "\n---\n") {
		if raw, err := yaml.YAMLToJSON([]byte(document)); err != nil {
			t.Fatal(err)
		} else if string(raw) != "null" {
			inJSON.Write(append(raw, '\n'))
		}
	}
	sources := map[string]func() (*snapshot.Snapshot, error){
		"yaml": func() (*snapshot.Snapshot, error) { return snapshot.ReadStream("in", strings.NewReader(printed)) },
		"json": func() (*snapshot.Snapshot, error) { return snapshot.ReadStream("in", &inJSON) },
		"directory": func() (*snapshot.Snapshot, error) {
			return snapshot.ReadDir(fstest.MapFS{"sub/in.yaml": &fstest.MapFile{Data: []byte(printed)}, "README": &fstest.MapFile{Data: []byte("?")}})
		},
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			s, err := source()
			if err != nil {
				t.Fatal(err)
			}
			if len(s.ClusterQueues) != 2 || s.ClusterQueues[0].Name != "a" || len(s.Workloads) != 1 || s.Workloads[0].Name != "w" {
				t.Errorf("ClusterQueues %v, Workloads %v", s.ClusterQueues, s.Workloads)
			}
			if s.Configuration == nil || s.Configuration.StageAdmission != "Greedy" {
				t.Errorf("configuration %+v", s.Configuration)
			}
			if len(s.Skipped) != 1 || !strings.HasPrefix(s.Skipped[0], "Service ns/s (") {
				t.Errorf("skipped %q", s.Skipped)
			}
		})
	}
}

func TestBadManifests(t *testing.T) {
	queue := "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: a}}"
	cases := map[string]struct{ content, want string }{
		"an old version":        {strings.ReplaceAll(queue, "v1beta2", "v1beta1"), "objects:1: ClusterQueue a has apiVersion kueue.x-k8s.io/v1beta1: write it in kueue.x-k8s.io/v1beta2"},
		"an unknown kind":       {strings.ReplaceAll(queue, "ClusterQueue", "ClusterQue"), "objects:1: ClusterQue a: there is no kind ClusterQue in kueue.x-k8s.io/v1beta2"},
		"an object given twice": {queue + "\n---\n" + queue, "ClusterQueue a is given twice, in objects:1 and in objects:3: remove one"},
		"no kind":               {"metadata: {name: a}", "objects:1: the object has no kind: write apiVersion and kind"},
		"no name":               {strings.ReplaceAll(queue, "name: a", ""), "objects:1: a ClusterQueue has no metadata.name"},
		"no namespace":          {strings.ReplaceAll(queue, "ClusterQueue", "LocalQueue"), "objects:1: LocalQueue a has no metadata.namespace: write it"},
		"a field of another type": {
			strings.ReplaceAll(queue, "name: a}", "name: a}, spec: {cohortName: {}}"), "objects:1: decode ClusterQueue: ",
		},
		"a description": {
			"apiVersion: " + snapshot.APIVersion + "\nkind: Snapshot\n", "objects:1: the file describes a snapshot, and has no objects: name its directory with --snapshot",
		},
		"no YAML":  {"a: b: c", "objects:1: "},
		"cut JSON": {`{"kind": "List", "items": [`, "objects:1: the document is no JSON: unexpected EOF"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := snapshot.ReadStream("objects", strings.NewReader(c.content)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := snapshot.ReadDir(fstest.MapFS{"README": &fstest.MapFile{}}); err == nil || !strings.Contains(err.Error(), "neither snapshot.json nor a file with the extension") {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestPseudonyms checks that no name stays, that a name has one pseudonym in all objects, and that each snapshot has other pseudonyms.
func TestPseudonyms(t *testing.T) {
	s := anySnapshot(t)
	raw := func(files fstest.MapFS) string {
		all := ""
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if name == "deviceclasses.resource.k8s.io.jsonl" {
				continue // they keep their names
			}
			all += string(files[name].Data)
		}
		return all
	}
	anonymous := write(t, s, snapshot.NewAnonymizer())
	content := raw(anonymous)
	for _, secret := range []string{"secret", "ns-a", `"name":"a"`} {
		if strings.Contains(content, secret) {
			t.Errorf("%s stays in the files:\n%s", secret, content)
		}
	}
	if content == raw(write(t, s, snapshot.NewAnonymizer())) {
		t.Error("two snapshots have the same pseudonyms")
	}
	got := read(t, anonymous)
	if !got.IsAnonymized || len(got.Workloads) != 2 {
		t.Fatalf("anonymized %v, %d Workloads", got.IsAnonymized, len(got.Workloads))
	}
	if got.LocalQueues[0].Namespace != got.Workloads[0].Namespace || got.LocalQueues[0].Name != got.Workloads[0].Name {
		t.Errorf("the same name has two pseudonyms: %s/%s and %s/%s", got.LocalQueues[0].Namespace, got.LocalQueues[0].Name, got.Workloads[0].Namespace, got.Workloads[0].Name)
	}
}

// Each field of the configuration is kept, unless it is known not to decide anything.
func TestConfigurationThatDecidesIsKept(t *testing.T) {
	text, err := os.ReadFile("../apis/config/v1alpha1/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := configapi.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	config.CoStart.Accelerators = []corev1.ResourceName{"example.com/npu"}
	config.Reservation.After = "15m"
	undecided := []string{
		"Mode", "ClientConnection", "Concurrency", "LeaderElection", "Metrics", "Health", "Visibility", "ExpectedStart", "Dashboard", "Logging", "GroupStart",
	}
	for name, anonymizer := range map[string]*snapshot.Anonymizer{"named": nil, "with pseudonyms": snapshot.NewAnonymizer()} {
		t.Run(name, func(t *testing.T) {
			got := read(t, write(t, &snapshot.Snapshot{Configuration: config}, anonymizer)).Configuration
			want, kept := reflect.ValueOf(*config), reflect.ValueOf(*got)
			for i := range want.NumField() {
				field := want.Type().Field(i).Name
				if field == "ManagedNamespaceSelector" && anonymizer != nil {
					continue
				}
				diff := cmp.Diff(want.Field(i).Interface(), kept.Field(i).Interface())
				if isKept := diff == ""; !slices.Contains(undecided, field) && !isKept {
					t.Errorf("%s: -want +got\n%s", field, diff)
				}
			}
		})
	}
}

// A snapshot of a version of Tranche that knew no reservations has no setting for them. Its manager reserved nothing.
func TestSnapshotWithoutReservations(t *testing.T) {
	for recorded, want := range map[string]string{"": apis.Never, "reservation: {}\n": apis.Never, "reservation: {after: 10m}\n": "10m"} {
		files := write(t, &snapshot.Snapshot{Configuration: &configapi.Configuration{}}, nil)
		files["configuration.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: " + configapi.APIVersion + "\nkind: Configuration\n" + recorded)}
		if got := read(t, files).Configuration.Reservation.After; got != want {
			t.Errorf("%q is read as %q, want %q", recorded, got, want)
		}
	}
}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}
