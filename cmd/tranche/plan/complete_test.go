package plan_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/cmd/tranche/plan"
)

// TestCompleteQuota completes the names of quotas from a snapshot, as the scripts of shells do.
func TestCompleteQuota(t *testing.T) {
	world := filepath.Join(recorded, "quota-raised", "snapshot")
	complete := func(words ...string) []string {
		out, _, err := run(t, plan.NewWhatIfCommand("test"), append([]string{"__complete", "quota", "--snapshot", world}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(out)
	}
	all := complete("")
	const directive = ":6" // no space, and no names of files
	if len(all) < 2 || all[len(all)-1] != directive {
		t.Fatalf("completed %v", all)
	}
	first := all[0]
	if strings.Count(first, "/") < 2 || !strings.HasSuffix(first, "=") {
		t.Errorf("completed %q, want CLUSTERQUEUE/FLAVOR/RESOURCE=", first)
	}
	if diff := cmp.Diff([]string{first, directive}, complete(first[:len(first)-1])); diff != "" {
		t.Errorf("the whole name: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(all[1:], complete(first+"8", "")); diff != "" {
		t.Errorf("after an argument: -want +got\n%s", diff)
	}
}
