package snapshotfile_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/snapshot"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &snapshot.Snapshot{
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
		Gaps:       []snapshot.Gap{{Resource: "nodes", Reason: "nodes is forbidden", Cure: "ask for the right to list nodes"}},
	}
	create := func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(taken, name)) }
	if err := s.Write(create, nil); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := snapshot.Pack(&archive, os.DirFS(taken)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "taken.tar.gz"), archive.String())
	write(t, filepath.Join(dir, "half.tar.gz"), archive.String()[:archive.Len()/10])
	write(t, filepath.Join(dir, "random.tar.gz"), "\xd6\xef\x65\xc2\x46\x80\x4c\xab")
	some := filepath.Join(dir, "some")
	if err := os.Mkdir(some, 0o700); err != nil {
		t.Fatal(err)
	}
	ofTeam := &snapshot.Snapshot{Namespaces: s.Namespaces, OnlyNamespaces: []string{"a"}}
	if err := ofTeam.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(some, name)) }, nil); err != nil {
		t.Fatal(err)
	}
	manifest := "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n"
	write(t, filepath.Join(dir, "objects.yaml"), manifest)
	missing := "missing: nodes: nodes is forbidden; ask for the right to list nodes\nwithout nodes: all but tranche what-if node-loss is answered\n"
	cases := map[string]struct{ path, in, warnings, want string }{
		"a directory": {path: taken, warnings: missing},
		"some namespaces": {
			path: some, warnings: "only the namespaces a were read: answers are those for a cluster in which nothing of other namespaces waits or holds quota\n",
		},
		"an archive": {path: filepath.Join(dir, "taken.tar.gz"), warnings: missing},
		"a manifest": {path: filepath.Join(dir, "objects.yaml"), warnings: "skipped: Secret s (" + filepath.Join(dir, "objects.yaml") + ")\n"},
		"no ClusterQueue": {
			path: "-", in: manifest + "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: w, namespace: a}}\n",
			warnings: "skipped: Secret s (standard input)\nthe manifests have no ClusterQueue: answers are those for a cluster without one, in which nothing is admitted\n",
		},
		"standard input":   {path: "-", in: manifest, warnings: "skipped: Secret s (standard input)\n"},
		"no file":          {path: filepath.Join(dir, "nowhere"), want: "nowhere: no such file"},
		"half an archive":  {path: filepath.Join(dir, "half.tar.gz"), want: "the archive is truncated or damaged; copy it again"},
		"random bytes":     {path: filepath.Join(dir, "random.tar.gz"), want: "random.tar.gz is no gzip archive, although its name ends like that of one: copy it again"},
		"another file":     {path: "-", in: "a,b\n1,2\n", want: "standard input:1: "},
		"empty input":      {path: "-", want: "standard input has no objects"},
		"no snapshot here": {path: t.TempDir(), want: "there is neither snapshot.json nor a file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var warnings bytes.Buffer
			var flags snapshotfile.Flags
			cmd := &cobra.Command{}
			flags.Add(cmd)
			if err := cmd.ParseFlags([]string{"--snapshot", c.path}); err != nil {
				t.Fatal(err)
			}
			got, err := flags.Read(strings.NewReader(c.in), &warnings)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || exitcode.Of(err) != exitcode.BadInput {
					t.Fatalf("error %v, want one with %q and exit code %d", err, c.want, exitcode.BadInput)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Namespaces) != 1 || warnings.String() != c.warnings {
				t.Errorf("%d namespaces, warnings %q, want 1 and %q", len(got.Namespaces), warnings.String(), c.warnings)
			}
		})
	}
}

// TestLacks: only objects that exist are lacking, and nodes count only where they are lost.
func TestLacks(t *testing.T) {
	running := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: batchv1.JobStatus{Active: 1}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}}}
	for name, c := range map[string]struct {
		snapshot                   snapshot.Snapshot
		foundation, plan, nodeLoss string
	}{
		"nothing": {},
		"kinds": {
			snapshot.Snapshot{Gaps: []snapshot.Gap{{Resource: "cohorts.kueue.x-k8s.io"}, {Resource: "pods"}, {Resource: "workloads.kueue.x-k8s.io", Namespaces: []string{"a"}}}},
			"the snapshot lacks cohorts, workloads", "the snapshot lacks cohorts, pods, workloads", "",
		},
		"what does not exist": {snapshot: snapshot.Snapshot{Gaps: []snapshot.Gap{{Resource: "cohorts.kueue.x-k8s.io", IsAbsent: true}, {Resource: "configmaps", IsAbsent: true}}}},
		"the configuration":   {snapshot: snapshot.Snapshot{Gaps: []snapshot.Gap{{Resource: "configmaps"}}}, plan: "the snapshot lacks configmaps"},
		"nodes":               {snapshot: snapshot.Snapshot{Gaps: []snapshot.Gap{{Resource: "nodes"}}}, nodeLoss: "the snapshot lacks nodes"},
		"other namespaces":    {snapshot: snapshot.Snapshot{OnlyNamespaces: []string{"a", "b"}}, plan: "the snapshot has only the namespaces a, b"},
		"running pods":        {snapshot: snapshot.Snapshot{Jobs: []*batchv1.Job{running}}, nodeLoss: "the snapshot lacks the running pods of JobSets and Jobs: take it with --pods"},
		"no running pods":     {snapshot: snapshot.Snapshot{Jobs: []*batchv1.Job{running}, Pods: []*corev1.Pod{pod}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &c.snapshot
			got := []string{snapshotfile.LacksFoundation(s), snapshotfile.LacksForPlan(s), snapshotfile.LacksForNodeLoss(s)}
			if want := []string{c.foundation, c.plan, c.nodeLoss}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestGaps: for each kind of a snapshot there is a line about what can be answered without it.
func TestGaps(t *testing.T) {
	for _, kind := range append(snapshot.Kinds(), nil) {
		resource := "configmaps"
		if kind != nil {
			resource = kind.FullResource()
		}
		var out strings.Builder
		if err := snapshotfile.PrintGaps(&out, []snapshot.Gap{{Resource: resource, Namespaces: []string{"a"}, Reason: "no"}, {Resource: resource, Namespaces: []string{"b"}, Reason: "no"}}); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(out.String(), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[2], "without "+strings.Split(resource, ".")[0]+": ") {
			t.Errorf("%s: %q", resource, lines)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
