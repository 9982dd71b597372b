package safety_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// TestDeadlockedAgainstAllSubsets compares Deadlocked with its definition: the largest set of claims of which none gets what it asks for when all
// others have released what they hold.
func TestDeadlockedAgainstAllSubsets(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawForest(t)
		bank := safety.NewBank(f.tree)
		var claims []*safety.Claim
		asked := map[*safety.Claim][]quota.Usage{}
		for i := range rapid.IntRange(0, 8).Draw(t, "claims") {
			c := f.drawClaim(t, i)
			bank.Add(c)
			claims = append(claims, c)
			// Claims ask for all that they may need, or for nothing.
			for _, peak := range c.Peaks {
				if i%4 > 0 {
					asked[c] = append(asked[c], peak.Without(c.Held))
				}
			}
		}
		asks := func(c *safety.Claim) []quota.Usage { return asked[c] }
		for _, root := range f.queues {
			got := names(bank.Deadlocked(root.Root(), asks))
			want := names(largestDeadlock(f, below(claims, root), asks))
			if !slices.Equal(got, want) {
				t.Fatalf("deadlocked are %v, want %v", got, want)
			}
			found += len(got)
		}
	})
	if found == 0 {
		t.Error("no deadlock was drawn")
	}
}

func largestDeadlock(f *forest, claims []*safety.Claim, asks func(*safety.Claim) []quota.Usage) []*safety.Claim {
	var largest []*safety.Claim
	for set := range 1 << len(claims) {
		var in, out []*safety.Claim
		for i, c := range claims {
			if set&(1<<i) != 0 {
				in = append(in, c)
			} else {
				out = append(out, c)
			}
		}
		f.twin(out, func() {
			waits := func(c *safety.Claim) bool {
				needs := asks(c)
				return c.Mode != safety.Halted && len(needs) > 0 && !slices.ContainsFunc(needs, c.Node.Fits)
			}
			goesOn := func(c *safety.Claim) bool { return !waits(c) }
			if len(in) > len(largest) && !slices.ContainsFunc(in, goesOn) {
				largest = in
			}
		})
	}
	return largest
}
