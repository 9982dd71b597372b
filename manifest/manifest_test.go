package manifest_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/manifest"
)

// TestRead compares the objects of a file and their lines, and the errors about what is not readable.
func TestRead(t *testing.T) {
	const a = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
	cases := map[string]struct {
		file, content string
		want          []string
	}{
		"documents":                    {content: "# a comment\n" + a + "--- # another\n\n# nothing\n---\n" + a, want: []string{"f:2 Namespace a", "f:9 Namespace a"}},
		"a document without an object": {content: "---\n# nothing\n---\n", want: nil},
		"lines of Windows":             {content: "apiVersion: v1\r\nkind: Node\r\n---\r\napiVersion: v1\r\nkind: Node\r\n", want: []string{"f:1 Node", "f:4 Node"}},
		"dashes in a text":             {content: a + "data: |\n  ---\n  b\n---\n" + a, want: []string{"f:1 Namespace a", "f:8 Namespace a"}},
		"a list": {
			content: "apiVersion: v1\nkind: List\nitems:\n- " + "apiVersion: v1\n  kind: Pod\n  metadata: {name: p, namespace: m}\n",
			want:    []string{"f:4 Pod m/p"},
		},
		"a typed list":  {content: "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: m}\n", want: []string{"f:4 Node m"}},
		"an empty list": {content: "apiVersion: v1\nkind: List\nitems: []\n", want: nil},
		"a list with a bad item": {
			content: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node}\n- {}\n",
			want:    []string{"f:4 Node", "f:5: the object has no kind: write apiVersion and kind"},
		},
		"JSON objects": {
			content: "{\"apiVersion\": \"v1\",\n\"kind\": \"Node\"}\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}\n",
			want:    []string{"f:1 Node", "f:3 Pod"},
		},
		"JSON that YAML cannot read": {
			content: "\n{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"\\ud83d\\ude00\"}}\n",
			want:    []string{"f:2 Node \U0001F600"},
		},
		"JSON in documents":  {content: a + "---\n{\"apiVersion\": \"v1\", \"kind\": \"Node\"}\n", want: []string{"f:1 Namespace a", "f:5 Node"}},
		"broken YAML":        {content: a + "---\na:\n  b: c\n d: e\n---\n" + a, want: []string{"f:1 Namespace a", "f:9 Namespace a", "f:6: the document is no YAML: did not find expected key; correct its syntax"}},
		"broken JSON":        {content: "{\"apiVersion\": \"v1\", \"kind\": \"Node\"}\n{\"kind\":\n  ?}\n", want: []string{"f:1 Node", "f:3: the document is no JSON: invalid character '?' looking for beginning of value; correct its syntax"}},
		"truncated JSON":     {content: "{\"kind\":\n\"List\", \"items\": [\n", want: []string{"f:2: the document is no JSON: unexpected EOF; correct its syntax"}},
		"a template of Helm": {content: a + "---\n{{ .Values.queue }}\n", want: []string{"f:1 Namespace a", "f:5: the document is no YAML: a key is a map, as in a template that is not rendered; correct its syntax"}},
		"three dots":         {content: a + "...\n" + a, want: []string{"f:1: another document may follow in the same text: write UTF-8, and a line of three dashes between documents"}},
		"dots at the end":    {content: a + "...\n", want: []string{"f:1 Namespace a"}},
		"text after dashes":  {content: a + "--- {apiVersion: v1, kind: Node}\n", want: []string{"f:1: another document may follow in the same text: write UTF-8, and a line of three dashes between documents"}},
		"UTF-16":             {content: "\xff\xfea\x00:\x00", want: []string{"f:1: another document may follow in the same text: write UTF-8, and a line of three dashes between documents"}},
		"a text":             {content: "\n\nhello\n", want: []string{"f:3: the document is no API object: write apiVersion, kind and metadata"}},
		"a name that is a bool": {
			content: "apiVersion: v1\nkind: Node\nmetadata:\n  name: on\n",
			want:    []string{"f:4: metadata.name is a bool, must be a string: correct it; quotes turn it into a text"},
		},
		"no kind":             {content: "metadata: {name: a}\n", want: []string{"f:1: the object has no kind: write apiVersion and kind"}},
		"a file of kustomize": {file: "kustomization.yaml", content: "resources: []\n", want: []string{"kustomization.yaml:1 Kustomization"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := c.file
			if file == "" {
				file = "f"
			}
			objects, errs := manifest.Read(file, []byte(c.content))
			var got []string
			for _, o := range objects {
				got = append(got, o.At()+" "+o.String())
			}
			for _, err := range errs {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

const pod = `# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {example.com/a: b}
spec:
  hostname: a
  containers:
  - &c
    name: c
    image: i
  - *c
  - name: e
    name: f
  hostname: b
  hostnam: c
`

// TestPlace compares the places of fields. One that does not exist has the place of what is above it.
func TestPlace(t *testing.T) {
	objects, errs := manifest.Read("f", []byte("---\n"+pod))
	if len(objects) != 1 || len(errs) != 0 {
		t.Fatal(objects, errs)
	}
	for field, want := range map[string]string{
		"":                               "3:1",
		"spec.containers[0].image":       "13:5",
		"spec.containers[1]":             "14:5",
		"spec.containers[1].image":       "13:5",
		"spec.containers[2].image":       "15:5",
		"spec.containers[7].image":       "10:3",
		"metadata.labels[example.com/a]": "7:12",
		"metadata.annotations":           "5:1",
		"spec.hostname":                  "17:3",
	} {
		line, column := objects[0].Place(field)
		if got := fmt.Sprintf("%d:%d", line, column); got != want {
			t.Errorf("Place(%q) is %s, want %s", field, got, want)
		}
	}
}

// TestStrictness compares the fields that are unknown, and those that are written twice.
func TestStrictness(t *testing.T) {
	objects, _ := manifest.Read("f", []byte(pod))
	unknown, err := objects[0].Decode(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"spec.hostnam"}, unknown); diff != "" {
		t.Errorf("unknown fields: -want +got\n%s", diff)
	}
	want := []manifest.Duplicate{{Field: "spec.containers[2].name", Line: 15, Column: 5}, {Field: "spec.hostname", Line: 16, Column: 3}}
	if diff := cmp.Diff(want, objects[0].Duplicates()); diff != "" {
		t.Errorf("duplicates: -want +got\n%s", diff)
	}
	if err := objects[0].DecodeStrict(&corev1.Pod{}); err == nil || err.Error() != `Pod p: the field "spec.containers[2].name" is given twice: remove one of the two` {
		t.Error(err)
	}
	unknownOnly, _ := manifest.Read("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostnam: a}\n"))
	if err := unknownOnly[0].DecodeStrict(&corev1.Pod{}); err == nil || err.Error() != `Pod p: there is no field "spec.hostnam": correct it, or remove it` {
		t.Error(err)
	}
	wrong, _ := manifest.Read("f", []byte("apiVersion: v1\nkind: Pod\nspec: {hostname: 1}\n"))
	if err := wrong[0].DecodeStrict(&corev1.Pod{}); err == nil || err.Error() != "decode Pod: spec.hostname is a number, must be a string" {
		t.Error(err)
	}
}

// TestFiles lists the files of a directory.
func TestFiles(t *testing.T) {
	file := &fstest.MapFile{}
	got, err := manifest.Files(fstest.MapFS{
		"b/c.yml": file, "a.yaml": file, "b/d.json": file, "README.md": file, "e.yaml/f": file, "..2026_01_01/a.yaml": file,
		"pipe.yaml": &fstest.MapFile{Mode: fs.ModeNamedPipe},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.yaml", "b/c.yml", "b/d.json"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
