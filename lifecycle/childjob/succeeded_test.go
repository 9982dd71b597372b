package childjob_test

import (
	"testing"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

func TestParseSucceeded(t *testing.T) {
	replicas := map[string]int32{"ps": 4, "worker": 6}
	for text, want := range map[string]string{
		"": "", "ps=0": "ps=0", "worker=1,4;ps=0-3": "ps=0-3;worker=1,4", "worker=0,1,2,4,5": "worker=0-2,4-5",
		"ps=2-9": "ps=2-3", "ps=-1,x,3-": "", "other=1": "", "ps=99999999999": "", "ps=3-1;;=": "", "ps=0-2147483647": "ps=0-3",
	} {
		if got := childjob.ParseSucceeded(text, replicas).String(); got != want {
			t.Errorf("ParseSucceeded(%q) = %q, want %q", text, got, want)
		}
	}
}
