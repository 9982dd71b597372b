package shadow

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Cause is why held quota was idle, or Used.
type Cause string

const (
	// Used is quota of pods that were ready.
	Used Cause = "Used"
	// LaterStage is quota of a ReplicatedJob that starts after others, before its Jobs had started: an earlier stage ran.
	LaterStage Cause = "LaterStage"
	// NotStarted is quota of Jobs that could start and had not started yet, or were stopped.
	NotStarted Cause = "NotStarted"
	// NotReady is quota of Jobs that had started, before their pods were ready.
	NotReady Cause = "NotReady"
	// Ended is quota that was held after its Jobs had ended.
	Ended Cause = "Ended"
)

// Causes returns the causes of idle quota in the order of a report.
func Causes() []Cause { return []Cause{LaterStage, NotStarted, NotReady, Ended} }

// An addition takes quota that was held for some time.
type addition func(from, to time.Time, held map[corev1.ResourceName]float64, why Cause)

// A usage is quota times seconds, by resource and cause.
type usage map[corev1.ResourceName]map[Cause]float64

func (u usage) add(from, to time.Time, held map[corev1.ResourceName]float64, why Cause) {
	seconds := to.Sub(from).Seconds()
	if seconds <= 0 {
		return
	}
	for name, amount := range held {
		if u[name] == nil {
			u[name] = map[Cause]float64{}
		}
		u[name][why] += amount * seconds
	}
}

// held returns the sum over all causes.
func (u usage) held(name corev1.ResourceName) float64 {
	sum := u[name][Used]
	for _, why := range Causes() {
		sum += u[name][why]
	}
	return sum
}

// idle returns the sum over the causes of idle quota.
func (u usage) idle(name corev1.ResourceName) float64 { return u.held(name) - u[name][Used] }

// isAccelerator reports whether a resource is one of devices.
func isAccelerator(name corev1.ResourceName) bool {
	domain, _, isQualified := strings.Cut(string(name), "/")
	return isQualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// A division adds to usages that divide a time into parts of the same length.
type division struct {
	from  time.Time
	step  time.Duration
	parts []usage
}

func newDivision(from, to time.Time, parts int) *division {
	step := (to.Sub(from)/time.Duration(parts) + time.Second - 1).Truncate(time.Second)
	d := &division{from: from, step: max(time.Second, step)}
	for at := from; at.Before(to); at = at.Add(d.step) {
		d.parts = append(d.parts, usage{})
	}
	return d
}

// add implements addition.
func (d *division) add(from, to time.Time, held map[corev1.ResourceName]float64, why Cause) {
	for i := max(0, int(from.Sub(d.from)/d.step)); i < len(d.parts); i++ {
		begin := d.from.Add(time.Duration(i) * d.step)
		if !begin.Before(to) {
			return
		}
		d.parts[i].add(latest(from, begin), earliest(to, begin.Add(d.step)), held, why)
	}
}

func latest(a, b time.Time) time.Time {
	return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare)
}

func earliest(a, b time.Time) time.Time {
	return slices.MinFunc([]time.Time{a, b}, time.Time.Compare)
}

// within calls an addition for the part of a time that is between two others.
func within(begin, end time.Time, add addition) addition {
	return func(from, to time.Time, held map[corev1.ResourceName]float64, why Cause) {
		if from, to := latest(from, begin), earliest(to, end); from.Before(to) {
			add(from, to, held, why)
		}
	}
}
