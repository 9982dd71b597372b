package trace_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/trace"
)

func variants(t *testing.T, names ...string) []trace.Variant {
	t.Helper()
	var all []trace.Variant
	for _, name := range names {
		v, err := trace.ParseVariant(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// Of 4 GPUs, a holds 2 for 10 minutes, so that large waits. The 1 of small is free, but under StrictFIFO it waits behind large. Then the leaders of p and q
// fit at once, and after that the workers of neither: only Greedy starts both. Safe without co-start starts q when the workers of p have ended. With
// co-start, and under Reserve, q starts when the leader of p has ended, too.
func TestVariants(t *testing.T) {
	arrivals := read(t, `submit,queue,name,stages,run,ready
0,main,a,2*nvidia.com/gpu=1,10m,
1m,main,large,3*nvidia.com/gpu=1,10m,
2m,main,small,nvidia.com/gpu=1,1m,
1h,main,p,leader(nvidia.com/gpu=1)=Ready=>workers(3*nvidia.com/gpu=1),"leader:30m,workers:10m","leader:1m,workers:0"
1h,main,q,leader(nvidia.com/gpu=1)=Ready=>workers(3*nvidia.com/gpu=1),"leader:30m,workers:10m","leader:1m,workers:0"
`)
	queues, err := trace.Assume(arrivals, corev1.ResourceList{gpu: resource.MustParse("4")})
	if err != nil {
		t.Fatal(err)
	}
	queues.ClusterQueues[0].Spec.QueueingStrategy = kueue.StrictFIFO
	queues.ClusterQueues[0].Annotations = map[string]string{apis.StageAdmissionAnnotation: string(configapi.StageAdmissionGreedy)}
	type starts struct{ small, q float64 }
	want := map[string]starts{
		"Staged":                       {600, 3600},
		"Staged+Greedy+BestEffortFIFO": {120, 3600},
		"Staged+Safe+NoCoStart":        {600, 4260},
		"Staged+Safe+CoStart":          {600, 5400},
		"Staged+Reserve+StrictFIFO":    {600, 5400},
		"Whole+BestEffortFIFO":         {120, 5400},
	}
	names := slices.Sorted(maps.Keys(want))
	report, err := trace.Replay(arrivals, queues, "", variants(t, names...)...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]starts{}
	for i, p := range report.Policies {
		if p.Policy != names[i] {
			t.Errorf("replay %d is of %s, want %s", i, p.Policy, names[i])
		}
		got[p.Policy] = starts{p.Results[2].Started, p.Results[4].Started}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(starts{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if q := queues.ClusterQueues[0]; q.Spec.QueueingStrategy != kueue.StrictFIFO || len(q.Annotations) != 1 || queues.Configuration != nil {
		t.Errorf("the queues of the caller have changed: %+v", q)
	}
}

func TestBadVariants(t *testing.T) {
	for name, want := range map[string]string{
		"":                                 `"" must begin with one of Whole, Staged`,
		"Greedy":                           `"Greedy" must begin with one of Whole, Staged`,
		"Staged+":                          `there is no setting "": the settings are BestEffortFIFO, StrictFIFO, Safe, Reserve, Greedy, CoStart, NoCoStart, Reservation, NoReservation`,
		"Staged+Strict":                    `there is no setting "Strict"`,
		"Staged+StrictFIFO+BestEffortFIFO": "StrictFIFO and BestEffortFIFO are both a queueing strategy: leave one out",
		"Staged+Safe+Safe":                 "Safe and Safe are both a stage admission",
		"Whole+Reservation+NoReservation":  "Reservation and NoReservation are both a setting of reservations",
		"Whole+StrictFIFO+Greedy":          "Greedy is about stages, and Whole has none: leave it out",
	} {
		if _, err := trace.ParseVariant(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", name, err, want)
		}
	}
}
