package pending

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/sample"
)

// TestOffline prints a start that follows from a limit, one that has no limit and so makes the next one unknown, and the filters.
func TestOffline(t *testing.T) {
	text := sample.OneQueue + sample.Pending("first", "2026-01-01T10:10:00Z", "\n  maximumExecutionTimeSeconds: 3600") +
		sample.Pending("endless", "2026-01-01T10:20:00Z", "") + sample.Pending("last", "2026-01-01T10:30:00Z", "")
	table := answer()
	wide := []string{
		"CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME     QUEUE  PRIORITY  AGE  OWNER  STAGE  EXPECTED-START" +
			"                                           CLUSTERQUEUE  REASON           MESSAGE",
	}
	for i, start := range []string{
		"by 2026-01-01 12:00:00Z (60m after the snapshot)       ", "by 2026-01-01 13:00:00Z (120m after the snapshot)      ", "unknown: no maximum execution time: Workload ml/endless",
	} {
		row, _, _ := strings.Cut(table[i+1], strings.TrimSpace(start))
		due := ""
		if i == 0 {
			due = "; due since 2026-01-01T10:20:00Z: quota that is released is kept for it, up to 4 cpu of flavor h100; it starts by 2026-01-01T12:00:00Z"
		}
		wide = append(wide, row+start+"  gpus          WaitingForQuota  waits for quota in ClusterQueue gpus: needs 4 cpu of flavor h100: 1 of 4 free"+due)
	}
	none := []string{"No pending quota Workloads."}
	for name, c := range map[string]struct {
		filter Filter
		format output.Format
		want   []string
	}{
		"all":                     {Filter{}, output.Text, table},
		"wide":                    {Filter{}, output.Wide, wide},
		"of the queues":           {Filter{Namespace: "ml", LocalQueue: "main"}, output.Text, table},
		"of the ClusterQueue":     {Filter{ClusterQueue: "gpus"}, output.Text, table},
		"of another namespace":    {Filter{Namespace: "other"}, output.Text, none},
		"of another LocalQueue":   {Filter{LocalQueue: "other"}, output.Text, none},
		"of another ClusterQueue": {Filter{ClusterQueue: "other"}, output.Text, none},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := snapshot.ReadStream("queues", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			s.TakenAt = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
			var out, warnings bytes.Buffer
			o := &offline{Snapshot: s, filter: c.filter, horizon: 24 * time.Hour, startOf: expected.Of, warnings: &warnings}
			list, err := o.list()
			if err != nil {
				t.Fatal(err)
			}
			if err := list.write(&out, c.format, s.TakenAt); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" || warnings.Len() > 0 {
				t.Errorf("-want +got\n%s%s", diff, warnings.String())
			}
		})
	}
}

// answer is that about the pending quota Workloads of the tests, which docs/admin.md shows.
func answer() []string {
	return []string{
		"CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME     QUEUE  PRIORITY  AGE  OWNER  STAGE  EXPECTED-START",
		"0                      0                    ml         first    main   0         50m  -      -      by 2026-01-01 12:00:00Z (60m after the snapshot)",
		"1                      1                    ml         endless  main   0         40m  -      -      by 2026-01-01 13:00:00Z (120m after the snapshot)",
		"2                      2                    ml         last     main   0         30m  -      -      unknown: no maximum execution time: Workload ml/endless",
	}
}

// TestDocument compares the answer in docs/admin.md with that of the command.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	if shown := "```\n$ bin/tranche pending --snapshot cluster.tar.gz -n ml\n" + strings.Join(answer(), "\n") + "\n```\n"; !strings.Contains(string(page), shown) {
		t.Errorf("docs/admin.md shows another answer: copy\n%s", shown)
	}
}

// TestWithoutStarts says below the table why starts are missing.
func TestWithoutStarts(t *testing.T) {
	list := &List{Items: []Row{{Namespace: "ml", Name: "a"}}, WithoutStarts: "this needs the right to list clusterqueues"}
	var out bytes.Buffer
	if err := list.write(&out, output.Text, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if want := "\nExpected starts that the manager has not written are not shown: this needs the right to list clusterqueues\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want the line %q", out.String(), want)
	}
}

// TestCut selects a page of each LocalQueue.
func TestCut(t *testing.T) {
	f := &flags{}
	f.parameters.Limit, f.parameters.Offset = 1, 1
	l := &List{Items: []Row{{Name: "a", LocalQueue: "x"}, {Name: "b", LocalQueue: "y"}, {Name: "c", LocalQueue: "x"}, {Name: "d", LocalQueue: "x"}}}
	if f.cut(l); len(l.Items) != 1 || l.Items[0].Name != "c" {
		t.Errorf("%v", l.Items)
	}
}

func TestValidate(t *testing.T) {
	s, err := snapshot.ReadStream("queues", strings.NewReader(sample.OneQueue+sample.Pending("first", "2026-01-01T10:10:00Z", "")))
	if err != nil {
		t.Fatal(err)
	}
	for want, filter := range map[string]Filter{
		"": {Namespace: "ml", LocalQueue: "main", ClusterQueue: "gpus"},
		`the snapshot has no namespace "x": correct the name, or take a snapshot that has it`:                    {Namespace: "x"},
		`the snapshot has no LocalQueue "x" in namespace "ml": correct the name, or take a snapshot that has it`: {Namespace: "ml", LocalQueue: "x"},
		`the snapshot has no LocalQueue "x": correct the name, or take a snapshot that has it`:                   {LocalQueue: "x"},
		`the snapshot has no ClusterQueue "x": correct the name, or take a snapshot that has it`:                 {ClusterQueue: "x"},
	} {
		got := ""
		if err := filter.Validate(s); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: the error is %q, want %q", filter, got, want)
		}
	}
}

// TestRow prints an answer of the visibility API.
func TestRow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	yes := true
	item := visibility.PendingWorkload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "w", CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
			Labels:          map[string]string{apis.JobSetLabel: "js", apis.StageLabel: "train", apis.GrowthLabel: "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "js", Controller: &yes}},
			Annotations:     map[string]string{apis.ExplanationAnnotation: `{"reason":"WaitingForQuota","message":"waits for quota"}`},
		},
		Priority: 3, LocalQueueName: "q", PositionInClusterQueue: 12, PositionInLocalQueue: 4,
	}
	list := &List{Items: []Row{rowOf(&item, "cq")}}
	for format, want := range map[output.Format]string{
		output.Text: "CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME  QUEUE  PRIORITY  AGE  OWNER      STAGE    EXPECTED-START\n" +
			"12                     4                    ns         w     q      3         5m   JobSet/js  train+1  -\n",
		output.Wide: "CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME  QUEUE  PRIORITY  AGE  OWNER      STAGE    EXPECTED-START  CLUSTERQUEUE  REASON           MESSAGE\n" +
			"12                     4                    ns         w     q      3         5m   JobSet/js  train+1  -               cq            WaitingForQuota  waits for quota\n",
		output.JSON: `{
  "items": [
    {
      "namespace": "ns",
      "name": "w",
      "owner": "JobSet/js",
      "jobSet": "js",
      "stage": "train",
      "growth": "1",
      "clusterQueue": "cq",
      "localQueue": "q",
      "priority": 3,
      "created": "2025-12-31T23:55:00Z",
      "position": {
        "inClusterQueue": 12,
        "inLocalQueue": 4
      },
      "reason": "WaitingForQuota",
      "message": "waits for quota"
    }
  ]
}
`,
	} {
		var out bytes.Buffer
		if err := (&flags{format: format}).write(&out, list, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
}
