package simulator

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// transcript is the output of a run.
type transcript struct {
	lines, violations []string
	// details are the decisions in full, which have to be the same in each run.
	details strings.Builder
}

// say writes a line of the timeline.
func (s *simulation) say(format string, args ...any) {
	s.out.lines = append(s.out.lines, clock(s.now)+" "+fmt.Sprintf(format, args...))
}

// violation reports that an invariant does not hold.
func (s *simulation) violation(format string, args ...any) {
	s.say("violation "+format, args...)
	s.out.violations = append(s.out.violations, s.out.lines[len(s.out.lines)-1])
}

// detail adds to the hash, but not to the timeline.
func (t *transcript) detail(format string, args ...any) {
	fmt.Fprintf(&t.details, format+"\n", args...)
}

// object adds all fields of an object to the hash.
func (t *transcript) object(o any) {
	text, err := json.Marshal(o)
	t.detail("%s %v", text, err)
}

// sum returns the hash of the timeline and all details.
func (t *transcript) sum() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(t.lines, "\n") + t.details.String()))
	return fmt.Sprintf("%08x", h.Sum32())
}

// clock formats a time as a scenario does: 0m, 90s as 1m30s, 1h.
func clock(d time.Duration) string {
	if d == 0 {
		return "0m"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
