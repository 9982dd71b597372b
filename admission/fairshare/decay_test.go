package fairshare_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

var start = time.Unix(1_000_000, 0)

func decay(halfLife, sampling time.Duration) *fairshare.Decay {
	x := quota.NewIndex()
	for _, fr := range names {
		x.ID(fr)
	}
	return fairshare.NewDecay(x, fairshare.UsagePolicy{UsageHalfLifeTime: halfLife, UsageSamplingInterval: sampling, ResourceWeights: map[corev1.ResourceName]float64{"cpu": 2}})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a)) }

// TestDecay: 8 gpus run for one half-life, then nothing for two.
func TestDecay(t *testing.T) {
	d := decay(time.Hour, 0)
	var a fairshare.Account
	gpus := quota.Usage{{ID: 0, Amount: 6}, {ID: 1, Amount: 2}}
	d.Enter(&a, gpus)
	d.Admit(&a, gpus, start)
	for _, tc := range []struct {
		after time.Duration
		want  float64
	}{{0, 0}, {time.Hour, 4}, {2 * time.Hour, 6}} {
		if got := d.Level(&a, 1, start.Add(tc.after)); !near(got, tc.want) {
			t.Errorf("level %v after %s, want %v", got, tc.after, tc.want)
		}
	}
	d.Release(&a, gpus, start.Add(2*time.Hour))
	if got := d.Level(&a, 2, start.Add(4*time.Hour)); !near(got, 6./4/2) {
		t.Errorf("level %v, want %v", got, 6./4/2)
	}
	if got := d.Level(&a, 1, start); !near(got, 6) {
		t.Errorf("level %v before the last change, want that of the change, %v", got, 6)
	}
	if got := d.Level(&a, 0, start); !math.IsInf(got, 1) {
		t.Errorf("level %v without weight", got)
	}
}

func TestDecayEntryPenalty(t *testing.T) {
	d := decay(time.Hour, time.Hour)
	var a fairshare.Account
	u := quota.Usage{{ID: 0, Amount: 4}, {ID: 2, Amount: 3000}}
	d.Enter(&a, u)
	d.Enter(&a, u)
	want := (4. + 2*3) / 2
	if got := d.Level(&a, 1, start); !near(got, 2*want) {
		t.Errorf("level %v after two reservations, want %v", got, 2*want)
	}
	d.Withdraw(&a, u)
	d.Admit(&a, u, start)
	if got := d.Level(&a, 1, start); !near(got, want) {
		t.Errorf("level %v after the admission, want %v", got, want)
	}
	d.Release(&a, u, start)
	if got := d.Level(&a, 1, start.Add(time.Hour)); !near(got, want/2) {
		t.Errorf("level %v an hour later, want %v", got, want/2)
	}
}

func TestDecayWithoutHalfLife(t *testing.T) {
	d := decay(0, time.Hour)
	a := d.Restore(decayed(t, quota.Usage{{ID: 0, Amount: 4}}))
	u := quota.Usage{{ID: 0, Amount: 4}}
	d.Enter(&a, u)
	d.Admit(&a, u, start)
	if got := d.Level(&a, 1, start.Add(time.Hour)); got != 0 {
		t.Errorf("level %v", got)
	}
}

// TestDecayIsContinuous: neither queries in between nor a restart change anything.
func TestDecayIsContinuous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decay(time.Hour, time.Minute)
		var plain, asked fairshare.Account
		now := start
		var running []quota.Usage
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "minutes")) * time.Minute)
			if rapid.Bool().Draw(t, "admit") || len(running) == 0 {
				u := usage(t)
				running = append(running, u)
				for _, a := range []*fairshare.Account{&plain, &asked} {
					d.Enter(a, u)
					d.Admit(a, u, now)
				}
			} else {
				d.Release(&plain, running[0], now)
				d.Release(&asked, running[0], now)
				running = running[1:]
			}
			now = now.Add(time.Minute)
			d.Level(&asked, 1, now)
			if rapid.Bool().Draw(t, "restart") {
				status := d.Status(&asked, now)
				asked = d.Restore(status)
				for _, u := range running {
					d.Resume(&asked, u, status.LastUpdate.Time)
				}
			}
		}
		now = now.Add(time.Hour)
		if a, b := d.Level(&plain, 1, now), d.Level(&asked, 1, now); math.Abs(a-b) > 0.05 {
			t.Fatalf("level %v, and %v when asked and restarted in between", a, b)
		}
	})
}

func decayed(t *testing.T, u quota.Usage) *kueue.LocalQueueAdmissionFairSharingStatus {
	t.Helper()
	d := decay(time.Hour, time.Hour)
	var a fairshare.Account
	d.Enter(&a, u)
	d.Admit(&a, u, start)
	return d.Status(&a, start)
}

func TestDecayStatus(t *testing.T) {
	s := decayed(t, quota.Usage{{ID: 0, Amount: 3}, {ID: 2, Amount: 5001}})
	want := map[corev1.ResourceName]string{"gpu": "1500m", "cpu": "2500500u"}
	if len(s.ConsumedResources) != len(want) || !s.LastUpdate.Time.Equal(start) {
		t.Errorf("%v at %s", s.ConsumedResources, s.LastUpdate)
	}
	for r, w := range want {
		if got := s.ConsumedResources[r]; got.Cmp(resource.MustParse(w)) != 0 {
			t.Errorf("%s: %s, want %s", r, got.String(), w)
		}
	}
	huge := decayed(t, quota.Usage{{ID: 0, Amount: quota.MaxCharge}})
	if got := huge.ConsumedResources["gpu"]; got.Value() != int64(quota.MaxCharge)/2 {
		t.Errorf("%s, want %d", got.String(), quota.MaxCharge/2)
	}
}

// TestDecayOfSmallUsage: what is rounded off at each of many samples adds up to nothing that matters.
func TestDecayOfSmallUsage(t *testing.T) {
	d := decay(7*24*time.Hour, 5*time.Minute)
	var a, unsampled fairshare.Account
	gpu := quota.Usage{{ID: 0, Amount: 1}}
	for _, account := range []*fairshare.Account{&a, &unsampled} {
		d.Enter(account, gpu)
		d.Admit(account, gpu, start)
	}
	end := start.Add(24 * time.Hour)
	for at := start; !at.After(end); at = at.Add(5 * time.Minute) {
		d.Status(&a, at)
	}
	got, want := d.Level(&a, 1, end), d.Level(&unsampled, 1, end)
	if want < 0.05 || math.Abs(got-want) > 1e-3*want {
		t.Errorf("level %v after a day of samples, want %v", got, want)
	}
}
