package bench_test

import (
	"slices"
	"strconv"
	"testing"
)

// BenchmarkCalibration does what the engine does most, without the engine: it looks up strings in maps, follows pointers, sorts and allocates. Times relative to
// it hold on other machines, too.
func BenchmarkCalibration(b *testing.B) {
	const size = 4096
	type object struct {
		name string
		next *object
		key  uint64
	}
	names := make([]string, size)
	for i := range names {
		names[i] = "namespace/name-" + strconv.Itoa(i)
	}
	for b.Loop() {
		objects := map[string]*object{}
		var last *object
		for i, name := range names {
			last = &object{name: name, next: last, key: uint64(i) * 11400714819323198485}
			objects[name] = last
		}
		all := make([]*object, 0, size)
		for o := last; o != nil; o = o.next {
			all = append(all, objects[o.name])
		}
		slices.SortFunc(all, func(a, b *object) int {
			if a.key < b.key {
				return -1
			}
			return 1
		})
	}
	record(b)
}
