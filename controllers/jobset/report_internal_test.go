package jobset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Conditions are written when they have stayed the same for a while. Conditions that keep changing are written from time to time.
func TestConditionsWaitToBeWritten(t *testing.T) {
	u := unreported{news: map[types.NamespacedName]unreportedConditions{}}
	key, start := types.NamespacedName{Namespace: "ns", Name: "js"}, time.Unix(1e9, 0)
	wait := func(at time.Duration, message string) time.Duration {
		return u.wait(key, []metav1.Condition{{Type: "Any", Message: message}}, start.Add(at))
	}
	const half = reportAfter / 2
	for _, pass := range []struct {
		at      time.Duration
		message string
		want    time.Duration
	}{
		{0, "a", reportAfter},
		{half, "a", half},
		{half, "b", reportAfter},
		{half + reportAfter, "b", 0},
		{2 * reportAfter, "b", half}, // the cache does not show the write yet
	} {
		if got := wait(pass.at, pass.message); got != pass.want {
			t.Errorf("after %s the conditions wait %s more, want %s", pass.at, got, pass.want)
		}
	}
	u.forget(key)
	writes := 0
	for i := range 4 * int(reportLatest/half) {
		if wait(10*reportLatest+time.Duration(i)*half, string(rune(i))) == 0 {
			writes++
		}
	}
	if writes != 3 {
		t.Errorf("conditions that change again and again were written %d times in %s, want once in each %s", writes, 4*reportLatest, reportLatest)
	}
}
