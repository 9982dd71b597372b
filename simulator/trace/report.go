package trace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Report compares replays of one trace. Durations are in seconds, and amounts in units of the resource.
type Report struct {
	// Jobs is how many the trace has, and SubmitSeconds the time from the first to the last submission.
	Jobs          int     `json:"jobs"`
	SubmitSeconds float64 `json:"submitSeconds"`
	// Resource is the one that sizes and utilisation are about, and Quota its nominal quota in all ClusterQueues and Cohorts.
	Resource corev1.ResourceName `json:"resource"`
	Quota    float64             `json:"quota"`
	// Policies has a replay for each Variant.
	Policies []Policy `json:"policies"`

	begin  time.Time
	queues *snapshot.Snapshot
}

// A Policy is what follows from the trace under one Variant.
type Policy struct {
	// Policy is the name of the Variant.
	Policy string `json:"policy"`
	// Finished, Stopped and Pending count jobs by how they end: Stopped ones started, and exceeded their limit. LeftOut ones are not replayed.
	Finished int `json:"finished"`
	Stopped  int `json:"stopped"`
	Pending  int `json:"pending"`
	LeftOut  int `json:"leftOut"`
	// Evictions counts those of quota Workloads.
	Evictions int `json:"evictions"`
	// MakespanSeconds is from the first submission until the last quota is released.
	MakespanSeconds float64 `json:"makespanSeconds"`
	// HeldSeconds is the quota that is held, times seconds, and Utilization its share of the quota over the makespan. UsedSeconds is the part of it that
	// pods use, and IdleSeconds the rest.
	HeldSeconds float64 `json:"heldSeconds"`
	Utilization float64 `json:"utilization"`
	UsedSeconds float64 `json:"usedSeconds"`
	IdleSeconds Idle    `json:"idleSeconds"`
	// WhileSubmitted are shares of the quota over the time from the first to the last submission. After it the queues only drain.
	WhileSubmitted Shares `json:"whileSubmitted"`
	// Curve is what is held and used over time.
	Curve []Step `json:"-"`
	// Sizes are the classes by how much of the resource the largest stage asks for, without empty ones.
	Sizes []Size `json:"sizes"`
	// Results are the jobs in the order of their submission.
	Results []Result `json:"results"`
	// Inactive has why ClusterQueues admit nothing, by name.
	Inactive map[string]string `json:"inactiveQueues"`
}

// Shares are parts of the quota: of what is held, and of what pods use.
type Shares struct {
	Held float64 `json:"held"`
	Used float64 `json:"used"`
}

// A Size is a class of jobs. To is the largest size, or 0 if there is none.
type Size struct {
	From int64 `json:"from"`
	To   int64 `json:"to,omitempty"`
	// Jobs is how many there are, of which some start and some finish.
	Jobs     int `json:"jobs"`
	Started  int `json:"started"`
	Finished int `json:"finished"`
	// Wait is until the first stage is admitted, of those that start, and WaitAll the wait of all stages together, of those that finish: the time from
	// submission to end, without the time that the job takes alone.
	Wait    Quantiles `json:"waitSeconds"`
	WaitAll Quantiles `json:"waitAllSeconds"`
	// Slowdown is the bounded slowdown of those that finish: the time from submission to end over the time that the job takes alone, at least 10 seconds.
	Slowdown Quantiles `json:"slowdown"`
}

// Quantiles describe a distribution.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// A Result is what happens to one job. Times count from the first submission, and are -1 if it does not happen.
type Result struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Size      float64 `json:"size"`
	Submitted float64 `json:"submittedSeconds"`
	Started   float64 `json:"startedSeconds"`
	Finished  float64 `json:"finishedSeconds"`
	Evictions int     `json:"evictions,omitempty"`
	// Why says why the job is left out or never starts, or is empty.
	Why string `json:"why,omitempty"`

	alone time.Duration
}

const (
	// shortest is the run time below which a slowdown is not divided: D. G. Feitelson et al., Theory and Practice in Parallel Job Scheduling (1997).
	shortest = 10 * time.Second
	// never stands for a time that does not come.
	never = -1
)

// Replay runs a trace once for each Variant, with the queues and the configuration of a snapshot, until all jobs have ended or can never start. If no
// resource is named, it is the extended resource that most jobs ask for.
func Replay(arrivals []*replay.Arrival, queues *snapshot.Snapshot, name corev1.ResourceName, variants ...Variant) (*Report, error) {
	if name == "" {
		name = largestResource(arrivals)
	}
	report := &Report{Jobs: len(arrivals), Resource: name, Quota: quotaOf(queues, name), queues: queues}
	compare := func(a, b *replay.Arrival) int { return a.At.Compare(b.At) }
	report.begin = slices.MinFunc(arrivals, compare).At
	report.SubmitSeconds = report.after(slices.MaxFunc(arrivals, compare).At)
	for i := range variants {
		v := &variants[i]
		in := &replay.Input{
			From: report.begin, To: report.begin.Add(2 * maxSpan), Queues: []replay.Version{{At: report.begin, Objects: v.queues(queues)}}, Arrivals: arrivals,
		}
		outcome, err := replay.Run(in, v.Policy)
		if err != nil {
			return nil, err
		}
		report.Policies = append(report.Policies, report.policy(v.Name, outcome))
	}
	return report, nil
}

// Assume returns the snapshot of a cluster with one ClusterQueue that has this quota, and all LocalQueues that the trace names.
func Assume(arrivals []*replay.Arrival, quota corev1.ResourceList) (*snapshot.Snapshot, error) {
	if len(quota) == 0 {
		return nil, errors.New("there are no queues")
	}
	const assumed = "assumed"
	group := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: assumed}}}
	for _, name := range slices.Sorted(maps.Keys(quota)) {
		group.CoveredResources = append(group.CoveredResources, name)
		group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: quota[name]})
	}
	s := &snapshot.Snapshot{
		ResourceFlavors: []*kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: assumed, UID: assumed}}},
		ClusterQueues: []*kueue.ClusterQueue{{ObjectMeta: metav1.ObjectMeta{Name: assumed, UID: assumed}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group}, QueueingStrategy: kueue.BestEffortFIFO,
		}}},
	}
	names := map[types.NamespacedName]bool{}
	for _, a := range arrivals {
		names[types.NamespacedName{Namespace: a.JobSet.Namespace, Name: a.JobSet.Labels[apis.QueueLabel]}] = true
	}
	for _, key := range slices.SortedFunc(maps.Keys(names), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		s.LocalQueues = append(s.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.String())}, Spec: kueue.LocalQueueSpec{ClusterQueue: assumed},
		})
	}
	return s, nil
}

// policy summarizes an outcome.
func (r *Report) policy(name string, o *replay.Outcome) Policy {
	p := Policy{Policy: name, Inactive: o.Inactive}
	used := usage{begin: r.begin, resource: r.Resource}
	for _, result := range o.Results {
		p.Evictions += result.Evictions
		used.add(result)
		for i := range result.Holdings {
			p.MakespanSeconds = max(p.MakespanSeconds, r.after(result.Holdings[i].To))
		}
		why := result.LeftOut
		switch {
		case why != "":
			p.LeftOut++
		case !result.Finished.IsZero():
			p.Finished++
		case !result.Started.IsZero():
			p.Stopped++
		default:
			p.Pending++
			why = r.whyPending(result.JobSet)
		}
		p.Results = append(p.Results, Result{
			Namespace: result.JobSet.Namespace, Name: result.JobSet.Name, Size: sizeOf(result.Arrival, r.Resource), Evictions: result.Evictions, Why: why,
			Submitted: r.after(result.At), Started: r.after(result.Started), Finished: r.after(result.Finished), alone: result.Alone(),
		})
	}
	slices.SortStableFunc(p.Results, func(a, b Result) int { return cmp.Compare(a.Submitted, b.Submitted) })
	p.HeldSeconds, p.UsedSeconds, p.IdleSeconds, p.Curve = used.held, used.used, used.idle, used.curve()
	p.IdleSeconds.NotRunning = max(0, p.HeldSeconds-p.UsedSeconds-p.IdleSeconds.Sum())
	if r.Quota > 0 && p.MakespanSeconds > 0 {
		p.Utilization = p.HeldSeconds / (r.Quota * p.MakespanSeconds)
	}
	if r.Quota > 0 && r.SubmitSeconds > 0 {
		p.WhileSubmitted.Held, p.WhileSubmitted.Used = Mean(p.Curve, 0, r.SubmitSeconds)
		p.WhileSubmitted.Held /= r.Quota
		p.WhileSubmitted.Used /= r.Quota
	}
	p.Sizes = sizes(p.Results)
	return p
}

// whyPending says why a JobSet never starts, although all others have ended.
func (r *Report) whyPending(js *jobsetapi.JobSet) string {
	name := js.Labels[apis.QueueLabel]
	for _, q := range r.queues.LocalQueues {
		if q.Namespace != js.Namespace || q.Name != name {
			continue
		}
		if !slices.ContainsFunc(r.queues.ClusterQueues, func(cq *kueue.ClusterQueue) bool { return cq.Name == string(q.Spec.ClusterQueue) }) {
			return fmt.Sprintf("ClusterQueue %s of LocalQueue %s/%s does not exist", q.Spec.ClusterQueue, js.Namespace, name)
		}
		return fmt.Sprintf("ClusterQueue %s has not enough quota for it, or does not admit it", q.Spec.ClusterQueue)
	}
	return fmt.Sprintf("LocalQueue %s/%s does not exist", js.Namespace, name)
}

// after returns how many seconds after the first submission something happens.
func (r *Report) after(at time.Time) float64 {
	if at.IsZero() {
		return never
	}
	return at.Sub(r.begin).Seconds()
}

// sizes summarizes jobs by size: none of the resource, 1, up to 4, up to 16, and so on.
func sizes(results []Result) []Size {
	var all []Size
	from, to := int64(0), int64(0)
	for left := results; len(left) > 0; {
		var others, class []Result
		for i := range left {
			if left[i].Size <= float64(to) {
				class = append(class, left[i])
			} else {
				others = append(others, left[i])
			}
		}
		if len(class) > 0 {
			all = append(all, sizeClass(from, to, class))
		}
		left, from = others, to+1
		to = max(1, to) * 4
		if from == 1 {
			to = 1
		}
	}
	return all
}

func sizeClass(from, to int64, results []Result) Size {
	var waits, all, slowdowns []float64
	for i := range results {
		r := &results[i]
		if r.Started >= 0 {
			waits = append(waits, r.Started-r.Submitted)
		}
		if r.Finished >= 0 {
			took, alone := r.Finished-r.Submitted, max(r.alone, shortest).Seconds()
			all = append(all, max(0, took-r.alone.Seconds()))
			slowdowns = append(slowdowns, max(1, took/alone))
		}
	}
	return Size{From: from, To: to, Jobs: len(results), Started: len(waits), Finished: len(all), Wait: quantilesOf(waits), WaitAll: quantilesOf(all), Slowdown: quantilesOf(slowdowns)}
}

// quantilesOf uses the nearest rank.
func quantilesOf(values []float64) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	at := func(q float64) float64 { return values[max(0, int(math.Ceil(q*float64(len(values))))-1)] }
	return Quantiles{Mean: sum / float64(len(values)), P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: values[len(values)-1]}
}

// sizeOf returns how much of a resource the largest stage of a JobSet asks for.
func sizeOf(a *replay.Arrival, name corev1.ResourceName) float64 {
	plan, err := stageplan.New(&a.JobSet.Spec)
	if err != nil {
		return 0 // it is left out
	}
	largest := 0.0
	for i := range plan.Stages {
		sum := 0.0
		for j := range plan.Stages[i].PodSets {
			sum += amountOf(&plan.Stages[i].PodSets[j], name)
		}
		largest = max(largest, sum)
	}
	return largest
}

// largestResource returns an extended resource that the most jobs ask for, or cpu.
func largestResource(arrivals []*replay.Arrival) corev1.ResourceName {
	asked := map[corev1.ResourceName]int{}
	for _, a := range arrivals {
		for i := range a.JobSet.Spec.ReplicatedJobs {
			for name := range stageplan.PodRequests(&a.JobSet.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec) {
				if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
					asked[name]++
				}
			}
		}
	}
	most := corev1.ResourceCPU
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if asked[name] > asked[most] {
			most = name
		}
	}
	return most
}

// quotaOf returns the nominal quota of a resource in all ClusterQueues and Cohorts.
func quotaOf(s *snapshot.Snapshot, name corev1.ResourceName) float64 {
	sum := resource.Quantity{}
	add := func(groups []kueue.ResourceGroup) {
		for fr, q := range ledger.QuotasOf(groups) {
			if fr.Resource == name {
				sum.Add(q.NominalQuota)
			}
		}
	}
	for _, cq := range s.ClusterQueues {
		add(cq.Spec.ResourceGroups)
	}
	for _, cohort := range s.Cohorts {
		add(cohort.Spec.ResourceGroups)
	}
	return sum.AsApproximateFloat64()
}

// String describes a class.
func (s *Size) String() string {
	switch {
	case s.To == 0:
		return "none"
	case s.From == s.To:
		return fmt.Sprint(s.From)
	}
	return fmt.Sprintf("%d to %d", s.From, s.To)
}
