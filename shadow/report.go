package shadow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Report is what happened in a cluster, and what would have happened in stages. Amounts are in units of the resource times seconds.
type Report struct {
	// From and To are when the observation began and ended.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// JobSets counts the JobSets.
	JobSets Counts `json:"jobSets"`
	// OtherJobs counts the jobs of other kinds that hold quota. They are replayed and hold the same in both replays.
	OtherJobs int `json:"otherJobs"`
	// Resources are the accelerators, or all resources if no pod requests an accelerator.
	Resources []Resource `json:"resources"`
	// Starts and Finishes compare the replays.
	Starts   Comparison `json:"starts"`
	Finishes Comparison `json:"finishes"`
	// Unsafe names the stages, as NAMESPACE/JOBSET/STAGE, that fitted in the replay in stages and whose admission could have led to a deadlock.
	// Tranche lets them wait.
	Unsafe []string `json:"unsafe"`
	// Error compares the replay as a whole with what happened.
	Error Error `json:"error"`
	// OverTime divides the time of the observation.
	OverTime []Part `json:"overTime"`
	// Differences are the JobSets that start or finish at other times, those that start earliest by most come first.
	Differences []Difference `json:"differences"`
	// LeftOut are the JobSets that Tranche would refuse or not manage.
	LeftOut []LeftOut `json:"leftOut"`
	// InactiveQueues has why ClusterQueues would admit nothing, by name.
	InactiveQueues map[string]string `json:"inactiveQueues"`
	// Folded are the JobSets that only count in what was held.
	Folded Folded `json:"folded"`
	// Gaps are what could not be read.
	Gaps []snapshot.Gap `json:"gaps"`
}

// Counts count JobSets.
type Counts struct {
	// Total are all, and Staged those of them with several stages.
	Total  int `json:"total"`
	Staged int `json:"staged"`
	// Finished, Running and Pending are how they ended: at the end of the observation, or when they were deleted.
	Finished int `json:"finished"`
	Running  int `json:"running"`
	Pending  int `json:"pending"`
}

// A Resource is what JobSets held of one resource.
type Resource struct {
	Name corev1.ResourceName `json:"name"`
	// Held, Used and Idle are what was measured. Idle is by cause.
	Held float64           `json:"heldSeconds"`
	Used float64           `json:"usedSeconds"`
	Idle map[Cause]float64 `json:"idleSeconds"`
	// HeldWhole and HeldStaged are what JobSets hold in the replays, and Saved is the difference.
	HeldWhole  float64 `json:"heldWholeSeconds"`
	HeldStaged float64 `json:"heldStagedSeconds"`
	Saved      float64 `json:"savedSeconds"`
}

// A Comparison counts the JobSets for which something happens earlier or later in stages, by more than a second.
type Comparison struct {
	Compared int `json:"compared"`
	Earlier  int `json:"earlier"`
	Later    int `json:"later"`
	// OnlyStaged and OnlyWhole count those for which it happens in one replay only, before the observation ended.
	OnlyStaged int `json:"onlyStaged"`
	OnlyWhole  int `json:"onlyWhole"`
	// EarlierSeconds and LaterSeconds are sums, and MostSeconds is the most by which it happens earlier for one JobSet.
	EarlierSeconds float64 `json:"earlierSeconds"`
	LaterSeconds   float64 `json:"laterSeconds"`
	MostSeconds    float64 `json:"mostSeconds"`
}

// An Error is how far the replay as a whole is from what happened. JobSets that had started before the observation began are not compared.
type Error struct {
	// Compared is how many JobSets started both in the replay and in the cluster, and Missing how many only in one of them.
	Compared int `json:"compared"`
	Missing  int `json:"missing"`
	// The difference of their starts in seconds, without its sign.
	MedianSeconds float64 `json:"medianSeconds"`
	P95Seconds    float64 `json:"p95Seconds"`
	MaxSeconds    float64 `json:"maxSeconds"`
	// HeldRatio is what JobSets hold in the replay over what they held, of the resource of which most was held, or 0 if nothing was.
	HeldRatio float64 `json:"heldRatio"`
}

// A Part is a part of the observation.
type Part struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Resources have the same fields as those of the whole time.
	Resources []Resource `json:"resources"`
}

// A Difference is a JobSet that starts or finishes at other times in the two replays. Times are missing if it does not happen.
type Difference struct {
	Namespace      string    `json:"namespace"`
	Name           string    `json:"name"`
	Started        time.Time `json:"started,omitzero"`
	StartedWhole   time.Time `json:"startedWhole,omitzero"`
	StartedStaged  time.Time `json:"startedStaged,omitzero"`
	FinishedWhole  time.Time `json:"finishedWhole,omitzero"`
	FinishedStaged time.Time `json:"finishedStaged,omitzero"`
}

// LeftOut is a JobSet that is not replayed.
type LeftOut struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

const (
	// parts is in how many parts a Report divides the time.
	parts = 12
	// tolerance is the difference up to which two times count as the same: objects have whole seconds.
	tolerance = time.Second
)

// Report replays what was observed until a time, and compares.
func (r *Recorder) Report(to time.Time, gaps []snapshot.Gap) (*Report, error) {
	return r.Prepare(to, gaps).Report()
}

// A Draft has what was observed until a time, and can be replayed while the Recorder goes on.
type Draft struct {
	report   *Report
	input    *replay.Input
	arrivals map[types.NamespacedName]*arrival
	// total and overTime are what was held. What is held in the replays is missing.
	total    sums
	overTime *division
}

// Prepare measures what was observed until a time.
func (r *Recorder) Prepare(to time.Time, gaps []snapshot.Gap) *Draft {
	from := latest(r.from, r.folded.Until)
	d := &Draft{
		arrivals: r.arrivals(from, to),
		report: &Report{
			From: r.from, To: to, JobSets: r.counts(), OtherJobs: len(r.others), Folded: r.folded, Gaps: gaps,
			Unsafe: []string{}, Differences: []Difference{}, LeftOut: []LeftOut{},
		},
		total: sums{measured: usage{}}, overTime: newDivision(from, to, parts),
	}
	// Jobs that started before the observation began are submitted before.
	d.input = &replay.Input{From: from, To: to, Queues: r.queues.since(from)}
	for _, a := range d.arrivals {
		d.input.From = earliest(d.input.From, a.At)
	}
	d.input.Queues[0].At = d.input.From
	r.assume(d.input, d.arrivals)
	for _, key := range slices.SortedFunc(maps.Keys(d.arrivals), compareKeys) {
		d.input.Arrivals = append(d.input.Arrivals, &d.arrivals[key].Arrival)
	}
	r.measure(d)
	return d
}

// counts returns how many JobSets there are.
func (r *Recorder) counts() Counts {
	c := Counts{Total: r.folded.JobSets, Finished: r.folded.JobSets}
	for _, js := range r.jobSets {
		if js.object == nil {
			continue
		}
		c.Total++
		if replay.IsStaged(js.object) {
			c.Staged++
		}
		switch {
		case !js.endedAt().IsZero():
			c.Finished++
		case js.startedAt().IsZero():
			c.Pending++
		default:
			c.Running++
		}
	}
	return c
}

// measure adds what was held, in sum and over time.
func (r *Recorder) measure(d *Draft) {
	// Sums of floating-point numbers depend on their order.
	for _, uid := range slices.Sorted(maps.Keys(r.jobSets)) {
		js := r.jobSets[uid]
		js.measure(r.from, d.report.To, d.total.measured.add)
		js.measure(d.overTime.from, d.report.To, d.overTime.add)
	}
	for name, causes := range r.dropped {
		for why, seconds := range causes {
			d.total.measured.add(r.from, r.from.Add(time.Second), map[corev1.ResourceName]float64{name: seconds}, why)
		}
	}
}

// Report replays what was observed, and compares.
func (d *Draft) Report() (*Report, error) {
	// Kueue reserves no quota for jobs that have waited for long.
	whole, err := replay.Run(d.input.WithReservations(apis.Never), replay.Whole)
	if err != nil {
		return nil, err
	}
	staged, err := replay.Run(d.input, replay.Staged)
	if err != nil {
		return nil, err
	}
	d.report.InactiveQueues = staged.Inactive
	b := &builder{Draft: d, whole: byKey(whole), staged: byKey(staged)}
	b.addUsage()
	b.compare()
	return d.report, nil
}

func byKey(o *replay.Outcome) map[types.NamespacedName]*replay.Result {
	all := map[types.NamespacedName]*replay.Result{}
	for _, result := range o.Results {
		all[result.Key()] = result
	}
	return all
}

// A builder completes a Draft with the results of the replays.
type builder struct {
	*Draft

	whole, staged map[types.NamespacedName]*replay.Result
}

// sums are what was held in the cluster and in the replays.
type sums struct{ measured, whole, staged usage }

// addUsage adds what is held in the replays. They count from the time on from which all jobs are replayed.
func (b *builder) addUsage() {
	from, to := b.overTime.from, b.report.To
	b.total.whole, b.total.staged = usage{}, usage{}
	whole, staged := newDivision(from, to, parts), newDivision(from, to, parts)
	addHoldings(b.whole, within(from, to, b.total.whole.add), within(from, to, whole.add))
	addHoldings(b.staged, within(from, to, b.total.staged.add), within(from, to, staged.add))
	names := namesOf(b.total)
	b.report.Resources = b.total.resources(names)
	for i := range b.overTime.parts {
		begin := from.Add(time.Duration(i) * b.overTime.step)
		part := sums{b.overTime.parts[i], whole.parts[i], staged.parts[i]}
		b.report.OverTime = append(b.report.OverTime, Part{From: begin, To: earliest(to, begin.Add(b.overTime.step)), Resources: part.resources(names)})
	}
}

// addHoldings adds what JobSets hold in a replay.
func addHoldings(results map[types.NamespacedName]*replay.Result, add ...addition) {
	for _, key := range slices.SortedFunc(maps.Keys(results), compareKeys) {
		if results[key].JobSet == nil {
			continue
		}
		for _, h := range results[key].Holdings {
			for _, one := range add {
				one(h.From, h.To, h.Held, Used)
			}
		}
	}
}

// namesOf returns the accelerators, or all resources if there are none.
func namesOf(s sums) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for _, u := range []usage{s.measured, s.whole, s.staged} {
		for name := range u {
			names[name] = true
		}
	}
	all := slices.Sorted(maps.Keys(names))
	if slices.ContainsFunc(all, isAccelerator) {
		all = slices.DeleteFunc(all, func(name corev1.ResourceName) bool { return !isAccelerator(name) })
	}
	return all
}

func (s sums) resources(names []corev1.ResourceName) []Resource {
	all := []Resource{}
	for _, name := range names {
		one := Resource{
			Name: name, Held: s.measured.held(name), Used: s.measured[name][Used], Idle: map[Cause]float64{},
			HeldWhole: s.whole.held(name), HeldStaged: s.staged.held(name),
		}
		for _, why := range Causes() {
			one.Idle[why] = s.measured[name][why]
		}
		one.Saved = one.HeldWhole - one.HeldStaged
		all = append(all, one)
	}
	return all
}

// compare compares the replays, and the one as a whole with what happened.
func (b *builder) compare() {
	var errors []float64
	for _, key := range slices.SortedFunc(maps.Keys(b.arrivals), compareKeys) {
		a, whole, staged := b.arrivals[key], b.whole[key], b.staged[key]
		if a.jobSet == nil || whole == nil || staged == nil {
			continue
		}
		if staged.LeftOut != "" {
			b.report.LeftOut = append(b.report.LeftOut, LeftOut{key.Namespace, key.Name, staged.LeftOut})
			continue
		}
		for _, stage := range staged.Unsafe {
			b.report.Unsafe = append(b.report.Unsafe, fmt.Sprintf("%s/%s", key, stage))
		}
		starts, finishes := b.report.Starts.add(whole.Started, staged.Started), b.report.Finishes.add(whole.Finished, staged.Finished)
		if starts || finishes {
			b.report.Differences = append(b.report.Differences, Difference{
				key.Namespace, key.Name, a.started, whole.Started, staged.Started, whole.Finished, staged.Finished,
			})
		}
		switch {
		case !a.isObserved(b.overTime.from) || a.started.IsZero() && whole.Started.IsZero():
		case a.started.IsZero() || whole.Started.IsZero():
			b.report.Error.Missing++
		default:
			errors = append(errors, whole.Started.Sub(a.started).Abs().Seconds())
		}
	}
	slices.SortStableFunc(b.report.Differences, func(x, y Difference) int { return -compareGains(&x, &y, b.report.To) })
	b.addError(errors)
}

// compareGains compares by how much two JobSets start and finish earlier in stages.
func compareGains(x, y *Difference, end time.Time) int {
	return cmp.Or(cmp.Compare(gain(x.StartedWhole, x.StartedStaged, end), gain(y.StartedWhole, y.StartedStaged, end)),
		cmp.Compare(gain(x.FinishedWhole, x.FinishedStaged, end), gain(y.FinishedWhole, y.FinishedStaged, end)))
}

// gain is how much earlier something happens in stages. What does not happen counts as happening at the end.
func gain(whole, staged, end time.Time) time.Duration {
	if whole.IsZero() {
		whole = end
	}
	if staged.IsZero() {
		staged = end
	}
	return whole.Sub(staged)
}

// add counts a JobSet, and reports whether it differs.
func (c *Comparison) add(whole, staged time.Time) (differs bool) {
	switch {
	case whole.IsZero() && staged.IsZero():
		return false
	case whole.IsZero():
		c.OnlyStaged++
		return true
	case staged.IsZero():
		c.OnlyWhole++
		return true
	}
	c.Compared++
	earlier := whole.Sub(staged)
	switch {
	case earlier > tolerance:
		c.Earlier++
		c.EarlierSeconds += earlier.Seconds()
		c.MostSeconds = max(c.MostSeconds, earlier.Seconds())
	case earlier < -tolerance:
		c.Later++
		c.LaterSeconds -= earlier.Seconds()
	default:
		return false
	}
	return true
}

// addError adds the differences between the starts in the replay as a whole and in the cluster.
func (b *builder) addError(seconds []float64) {
	e := &b.report.Error
	slices.Sort(seconds)
	if e.Compared = len(seconds); e.Compared > 0 {
		e.MedianSeconds, e.P95Seconds, e.MaxSeconds = seconds[len(seconds)/2], seconds[(len(seconds)*95)/100], seconds[len(seconds)-1]
	}
	if len(b.report.Resources) == 0 {
		return
	}
	most := slices.MaxFunc(b.report.Resources, func(x, y Resource) int { return cmp.Compare(x.Held, y.Held) })
	var held, replayed float64
	for i := range b.report.OverTime {
		for _, part := range b.report.OverTime[i].Resources {
			if part.Name == most.Name {
				held, replayed = held+part.Held, replayed+part.HeldWhole
			}
		}
	}
	if held > 0 {
		e.HeldRatio = replayed / held
	}
}
