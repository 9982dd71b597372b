package unopened_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/admission/internal/unopened"
)

func TestRegistry(t *testing.T) {
	var r unopened.Registry[string, int]
	check := func(what string, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(r.Woken())); !slices.Equal(got, want) {
			t.Errorf("%s: %v are woken, want %v", what, got, want)
		}
	}
	r.Wake(1)
	r.WakeAll()
	r.WakeOwner("a")
	r.Forget("a")
	check("empty")
	r.Keep("a", 1, 2)
	r.Keep("b", 2)
	r.Keep("b", 3)
	r.Wake(1)
	if r.Keeps("a") || !r.Keeps("b") || r.Keeps("c") {
		t.Error("want only b to be kept")
	}
	check("topic 1", "a")
	r.Wake(2)
	check("topic 2 does not wake the first again", "b")
	r.Wake(3)
	check("topic 3 does not wake the second again")
	r.Keep("a", 1)
	r.Keep("b", 1)
	r.Forget("b")
	r.Wake(1)
	check("without the forgotten", "a")
	r.Keep("a", 1)
	r.WakeAll()
	r.Forget("a")
	check("forgotten after it was woken")
	r.Keep("a")
	r.WakeOwner("a")
	r.WakeOwner("b")
	check("one owner", "a")
}
