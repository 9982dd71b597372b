// Package policies contains the admission policies that Tranche installs.
package policies

import (
	"embed"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS

// CheckLimits checks the parameters that the policies compare with what tenants write: if one is no number, they refuse all JobSets.
func CheckLimits(data map[string]string) error {
	if limit, set := data["maxTerminationGracePeriod"]; set {
		if duration, err := time.ParseDuration(limit); err != nil || duration < time.Second {
			return fmt.Errorf("data.maxTerminationGracePeriod is %q, must be a duration of at least a second, such as 90s or 1h", limit)
		}
	}
	for _, name := range []string{"maxJobs", "maxPods"} {
		limit, set := data[name]
		if bound, err := strconv.ParseInt(limit, 10, 32); set && (err != nil || bound < 1) {
			return fmt.Errorf("data.%s is %q, must be a whole number from 1 to %d", name, limit, math.MaxInt32)
		}
	}
	return nil
}
