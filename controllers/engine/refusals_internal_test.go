package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A refusal is written when its reason has stood for a while. Later reasons replace it, and amounts wait.
func TestBacklog(t *testing.T) {
	stage := admission.StageKey{Namespace: "n", Name: "w"}
	type refusal struct {
		at      time.Duration
		message string
	}
	flapping := []refusal{}
	for i := range 41 {
		flapping = append(flapping, refusal{time.Duration(i) * 600 * time.Millisecond, []string{"no quota", "stopped", "unsafe"}[i%3]})
	}
	tests := map[string]struct {
		refusals []refusal
		want     map[time.Duration]string
	}{
		"after a second": {[]refusal{{0, "1 GPU more"}}, map[time.Duration]string{time.Second: "1 GPU more"}},
		"only the newest": {
			[]refusal{{0, "1 GPU more"}, {900 * time.Millisecond, "2 GPU more"}}, map[time.Duration]string{time.Second: "2 GPU more"},
		},
		"another reason settles, too": {
			[]refusal{{0, "1 GPU more"}, {900 * time.Millisecond, "stopped"}}, map[time.Duration]string{1900 * time.Millisecond: "stopped"},
		},
		"reasons that do not settle": {
			flapping, map[time.Duration]string{10 * time.Second: "stopped", 20200 * time.Millisecond: "no quota", 25 * time.Second: "stopped"},
		},
		"amounts once a minute": {
			[]refusal{{0, "1 GPU more"}, {10 * time.Second, "2 GPU more"}, {30 * time.Second, "3 GPU more"}, {50 * time.Second, "4 GPU more"}},
			map[time.Duration]string{time.Second: "1 GPU more", 71 * time.Second: "4 GPU more"},
		},
		"another reason does not wait for the minute of amounts": {
			[]refusal{{0, "1 GPU more"}, {10 * time.Second, "2 GPU more"}, {30 * time.Second, "stopped"}},
			map[time.Duration]string{time.Second: "1 GPU more", 31 * time.Second: "stopped"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, began := newBacklog(time.Second), time.Now()
				got := map[time.Duration]string{}
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					var written *quotaworkload.Wait
					for u := b.next(ctx); u != nil; u = b.next(ctx) {
						if b.mayWrite(u, written, time.Now()) {
							wait := u.refuse.Refusal.Wait()
							written = &wait
							got[time.Since(began)] = wait.Message
						}
					}
				}()
				for _, r := range test.refusals {
					time.Sleep(r.at - time.Since(began))
					b.add(&admission.Refuse{Stage: stage, Refusal: admission.Refusal{Message: r.message}}, time.Now())
				}
				time.Sleep(2 * time.Minute)
				stop()
				synctest.Wait()
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("written: -want +got\n%s", diff)
				}
				if len(b.refused) > 0 {
					t.Errorf("%d refusals are left", len(b.refused))
				}
			})
		})
	}
}

// A refusal of which only amounts would be written does not keep a newer one from being written.
func TestPutBackKeepsTheNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(time.Second)
		stage := admission.StageKey{Namespace: "n", Name: "w"}
		b.add(&admission.Refuse{Stage: stage, Refusal: admission.Refusal{Message: "old"}}, time.Now())
		taken := b.next(t.Context())
		b.add(&admission.Refuse{Stage: stage, Refusal: admission.Refusal{Message: "new"}}, time.Now())
		b.putBack(taken, time.Now(), time.Minute)
		began := time.Now()
		if u := b.next(t.Context()); u.refuse.Refusal.Message != "new" || time.Since(began) != time.Second {
			t.Errorf("%v comes back after %s, want the newer refusal after a second", u, time.Since(began))
		}
	})
}

// Refusals get the rate that other decisions leave, and never none.
func TestBudget(t *testing.T) {
	now := time.Now()
	b := newBudget()
	if got := b.limit(); got != refusalsPerSecond {
		t.Errorf("limit() = %v where nothing else is written, want %d", got, refusalsPerSecond)
	}
	perSecond := func(rate int, span time.Duration) {
		for range int(span.Seconds()) * rate {
			now = now.Add(time.Second / time.Duration(rate))
			b.spend(now)
		}
	}
	perSecond(20, time.Minute)
	if got := b.limit(); got < 8 || got > 12 {
		t.Errorf("limit() = %v with 20 admissions a second, want about 10", got)
	}
	perSecond(200, time.Minute)
	if got := b.limit(); got != fewestRefusals {
		t.Errorf("limit() = %v with 200 admissions a second, want %d", got, fewestRefusals)
	}
	now = now.Add(time.Minute)
	if b.decay(now); b.limit() < refusalsPerSecond-1 {
		t.Errorf("limit() = %v after a minute without admissions, want %d", b.limit(), refusalsPerSecond)
	}
}
