package pending

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
)

func TestWritePending(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	yes := true
	var out bytes.Buffer
	items := []visibility.PendingWorkload{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "w", CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "js", Controller: &yes}},
		},
		Priority: 3, LocalQueueName: "q", PositionInClusterQueue: 12, PositionInLocalQueue: 4,
	}}
	if err := writePending(&out, items, now); err != nil {
		t.Fatal(err)
	}
	want := []string{"12", "4", "ns", "w", "q", "3", "5m", "JobSet/js"}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !cmp.Equal(strings.Fields(lines[1]), want) {
		t.Errorf("got:\n%s", out.String())
	}
	out.Reset()
	if err := writePending(&out, nil, now); err != nil || out.String() != "No pending quota Workloads.\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
