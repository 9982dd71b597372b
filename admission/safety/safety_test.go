package safety_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

func drawUsage(t *rapid.T, most int64) quota.Usage {
	u := quota.Usage{}
	for _, f := range []kueue.ResourceFlavorReference{"a", "b"} {
		u[quota.FlavorResource{Flavor: f, Resource: "gpu"}] = quota.Amount(rapid.Int64Range(0, most).Draw(t, "amount"))
	}
	return u
}

// someOrderWorks is a twin of Blocked that tries every order.
func someOrderWorks(free quota.Usage, claims []*safety.Claim) bool {
	if len(claims) == 0 {
		return true
	}
	for i, c := range claims {
		for _, peak := range c.Peaks {
			fits := true
			freed := quota.Usage{}
			for fr, a := range free {
				fits = fits && (peak[fr] <= c.Held[fr] || peak[fr]-c.Held[fr] <= a)
				freed[fr] = a + c.Held[fr]
			}
			if fits && someOrderWorks(freed, slices.Delete(slices.Clone(claims), i, i+1)) {
				return true
			}
		}
	}
	return false
}

func TestBlockedAgainstEveryOrder(t *testing.T) {
	safe, unsafe := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		limits := drawUsage(t, 12)
		free := quota.Usage{}
		free.AddAll(limits)
		var claims []*safety.Claim
		for range rapid.IntRange(0, 5).Draw(t, "claims") {
			c := &safety.Claim{Held: drawUsage(t, 4)}
			for range rapid.IntRange(1, 2).Draw(t, "peaks") {
				peak := drawUsage(t, 6)
				peak.AddAll(c.Held)
				c.Peaks = append(c.Peaks, peak)
			}
			for fr, a := range c.Held {
				free[fr] -= a
			}
			claims = append(claims, c)
		}
		blocked := safety.Blocked(func(fr quota.FlavorResource) quota.Amount { return limits[fr] }, claims)
		want := someOrderWorks(free, claims)
		if got := len(blocked) == 0; got != want {
			t.Fatalf("safe %v, some order works %v: limits %v, claims %+v", got, want, limits, claims)
		}
		if want {
			safe++
		} else {
			unsafe++
		}
	})
	if safe == 0 || unsafe == 0 {
		t.Errorf("%d safe and %d unsafe states: the test tells nothing", safe, unsafe)
	}
}
