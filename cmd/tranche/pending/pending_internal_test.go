package pending

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
)

func TestWrite(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	yes := true
	items := []visibility.PendingWorkload{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "w", CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "js", Controller: &yes}},
		},
		Priority: 3, LocalQueueName: "q", PositionInClusterQueue: 12, PositionInLocalQueue: 4,
	}}
	explained := items[0]
	explained.Annotations = map[string]string{apis.ExplanationAnnotation: `{"reason":"WaitingForQuota","message":"waits for quota"}`}
	for name, c := range map[string]struct {
		format output.Format
		items  []visibility.PendingWorkload
		want   string
	}{
		"text": {output.Text, items, "CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME  QUEUE  PRIORITY  AGE  OWNER\n" +
			"12                     4                    ns         w     q      3         5m   JobSet/js\n"},
		"wide": {
			output.Wide,
			[]visibility.PendingWorkload{explained, items[0]},
			"CLUSTERQUEUE-POSITION  LOCALQUEUE-POSITION  NAMESPACE  NAME  QUEUE  PRIORITY  AGE  OWNER      REASON           MESSAGE\n" +
				"12                     4                    ns         w     q      3         5m   JobSet/js  WaitingForQuota  waits for quota\n" +
				"12                     4                    ns         w     q      3         5m   JobSet/js  -                -\n",
		},
		"nothing":       {output.Text, nil, "No pending quota Workloads.\n"},
		"nothing, YAML": {output.YAML, nil, "apiVersion: visibility.kueue.x-k8s.io/v1beta2\nitems: []\nkind: PendingWorkloadsSummary\nmetadata: {}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&flags{format: c.format}).write(&out, c.items, now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
