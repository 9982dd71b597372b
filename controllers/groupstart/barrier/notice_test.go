package barrier_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// TestNotice: a written notice is read back unchanged, and releases only the signals that it lists.
func TestNotice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		signal := rapid.StringMatching(`[0-9a-f]{2}\.[1-3]`)
		want := barrier.Notice{
			Endpoint:   rapid.SampledFrom([]string{"", "http://tranche:8083/v1/groups/a/b"}).Draw(t, "endpoint"),
			Token:      rapid.StringMatching(`[A-Z2-7]{1,26}`).Draw(t, "token"),
			Pods:       rapid.IntRange(0, 1_000_000).Draw(t, "pods"),
			Released:   rapid.SliceOfNDistinct(signal, 0, 20, rapid.ID).Draw(t, "released"),
			HasStarted: rapid.Bool().Draw(t, "started"),
		}
		data := want.Data()
		got := barrier.ReadNotice(func(key string) string { return data[key] })
		listed := map[string]bool{}
		for _, one := range want.Released {
			listed[one] = true
		}
		if one := signal.Draw(t, "signal"); got.Releases(one) != listed[one] {
			t.Errorf("%v releases %q: %t", got.Released, one, !listed[one])
		}
		if content, exists := data["started"]; exists != want.HasStarted || exists && content == "" || got.HasStarted != want.HasStarted {
			t.Errorf("file started is %q and exists: %t, read %t; want %t", content, exists, got.HasStarted, want.HasStarted)
		}
		if again := got.Data(); len(got.Released) != len(want.Released) || got.Token != want.Token || got.Pods != want.Pods || again["endpoint"] != data["endpoint"] {
			t.Errorf("wrote %v, read %v", want, got)
		}
	})
}

// TestReadNotice: any content of a ConfigMap can be read.
func TestReadNotice(t *testing.T) {
	cases := map[string]struct {
		data map[string]string
		want barrier.Notice
	}{
		"nothing":           {nil, barrier.Notice{}},
		"no number of pods": {map[string]string{"pods": "many", "token": "x\n"}, barrier.Notice{Token: "x"}},
		"out of order":      {map[string]string{"released": "b.1\n\n a.1 "}, barrier.Notice{Released: []string{"a.1", "b.1"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := barrier.ReadNotice(func(key string) string { return c.data[key] })
			got.Released = append([]string(nil), got.Released...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	if got := barrier.ConfigMapName("js"); got != "js-group-scheduling" {
		t.Errorf("ConfigMap %q", got)
	}
	if got := barrier.Signal("uid", "2"); got != "uid.2" {
		t.Errorf("signal %q", got)
	}
	if got := barrier.Path(types.NamespacedName{Namespace: "ml", Name: "js"}); got != "/v1/groups/ml/js" {
		t.Errorf("path %q", got)
	}
}
