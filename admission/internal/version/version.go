package version

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// An Observed fact, and the version of its object.
type Observed[T any] struct {
	Fact    T
	Version Version
}

// A Version tells observations of one object apart. Versions of different objects cannot be compared.
type Version struct {
	uid      types.UID
	Resource uint64
}

// Of returns the version of an observation.
func Of(uid types.UID, resourceVersion string) Version {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		n = 0
	}
	return Version{uid, n}
}

// IsOlderThan reports whether an observation is older than a known one of the same object.
func (v Version) IsOlderThan(known Version) bool {
	return v.uid == known.uid && v.Resource != 0 && v.Resource < known.Resource
}
