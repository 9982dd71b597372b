package ledger

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Only what is the same at two looks, one after the other, is confirmed.
func TestConfirmed(t *testing.T) {
	difference := func(object string, books uint64, booked quota.Amount) []Difference {
		return []Difference{{
			Key: types.NamespacedName{Name: "w"}, Object: Holding{UID: "w", ResourceVersion: object},
			Booked: admission.StageBook{
				UID: "w", ResourceVersion: books, ClusterQueue: "q",
				Amounts: []admission.FlavorAmount{{FlavorResource: quota.FlavorResource{Flavor: "a100", Resource: "gpu"}, Amount: booked}},
			},
		}}
	}
	for name, c := range map[string]struct {
		looks [][]Difference
		want  int
	}{
		"seen once":                     {[][]Difference{difference("1", 1, 8)}, 0},
		"seen twice":                    {[][]Difference{difference("1", 1, 8), difference("1", 1, 8)}, 1},
		"the object has changed":        {[][]Difference{difference("1", 1, 8), difference("2", 1, 8)}, 0},
		"the engine has seen something": {[][]Difference{difference("1", 1, 8), difference("1", 2, 8)}, 0},
		"something else differs":        {[][]Difference{difference("1", 1, 8), difference("1", 1, 4)}, 0},
		"gone in between":               {[][]Difference{difference("1", 1, 8), nil, difference("1", 1, 8)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Auditor{}
			var got []Difference
			for _, look := range c.looks {
				got = a.confirmed(look)
			}
			if len(got) != c.want {
				t.Errorf("confirmed %d, want %d", len(got), c.want)
			}
		})
	}
}
