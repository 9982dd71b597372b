package quota_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/quota"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		resource   corev1.ResourceName
		quantity   string
		wantAmount quota.Amount
		wantOK     bool
	}{
		"milli for cpu":      {"cpu", "1500m", 1500, true},
		"units otherwise":    {"memory", "2Ki", 2048, true},
		"rounded up":         {"gpu", "1500m", 2, true},
		"negative":           {"gpu", "-1", 0, false},
		"too large":          {"gpu", "1E", quota.MaxAmount, false},
		"too large for cpu":  {"cpu", "1P", quota.MaxAmount, false},
		"large but possible": {"gpu", "72P", 72_000_000_000_000_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := quota.Of(tc.resource, resource.MustParse(tc.quantity))
			if got != tc.wantAmount || ok != tc.wantOK {
				t.Errorf("Of(%s, %s) = %d, %v, want %d, %v", tc.resource, tc.quantity, got, ok, tc.wantAmount, tc.wantOK)
			}
		})
	}
}

func TestArithmeticStopsAtTheLimits(t *testing.T) {
	const most, least = quota.MaxAmount, quota.Amount(math.MinInt64)
	for name, tc := range map[string]struct{ got, want quota.Amount }{
		"plus":             {most.Plus(1), most},
		"plus negative":    {least.Plus(-1), least},
		"minus":            {least.Minus(1), least},
		"minus least":      {quota.Amount(-1).Minus(least), most},
		"zero minus least": {quota.Amount(0).Minus(least), most},
		"times":            {most.Times(2), most},
		"times nothing":    {most.Times(0), 0},
		"plain":            {quota.Amount(5).Plus(3).Minus(10).Plus(4).Times(3), 6},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("%d, want %d", tc.got, tc.want)
			}
		})
	}
}
