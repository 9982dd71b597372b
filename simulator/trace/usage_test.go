package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/simulator/trace"
)

// On 6 GPUs, a prepares without GPUs, trains on 4 for 10 minutes, of which it loads for 2, and evaluates on 2. c needs 3 and waits until a has trained. b has
// a leader with 1 GPU that loads for 1 minute, and then waits until a has ended and its 4 workers fit. It ends after them.
const usageTrace = `submit,queue,name,stages,run,ready
0,main,a,prepare(cpu=1)=Succeeded=>train(4*nvidia.com/gpu=1)=Succeeded=>eval(nvidia.com/gpu=2),"prepare:5m,train:10m,eval:5m","prepare:0,train:2m,eval:0"
5m,main,c,nvidia.com/gpu=3,1m,
6m,main,b,leader(nvidia.com/gpu=1)=Ready=>workers(4*nvidia.com/gpu=1),"leader:20m,workers:4m","leader:1m,workers:1m"
`

func TestUsage(t *testing.T) {
	arrivals := read(t, usageTrace)
	queues, err := trace.Assume(arrivals, corev1.ResourceList{gpu: resource.MustParse("6"), "cpu": resource.MustParse("8")})
	if err != nil {
		t.Fatal(err)
	}
	report, err := trace.Replay(arrivals, queues, "", variants(t, "Staged+NoCoStart", "Whole")...)
	if err != nil {
		t.Fatal(err)
	}
	type usage struct {
		makespan, held, used float64
		idle                 trace.Idle
		submitted            trace.Shares
		waits                float64
		curve                []trace.Step
	}
	const minute = 60.0
	for i, want := range []usage{
		{
			makespan: 26, held: 4*10 + 2*5 + 3 + 20 + 4*4, used: 4*8 + 2*5 + 3 + (20 - 14) + 4*3, waits: 10,
			idle: trace.Idle{NotReady: 4*2 + 1 + 4, WaitsForStage: 20 - 7}, submitted: trace.Shares{Held: 4. / 6 / 6},
			curve: []trace.Step{
				{5, 4, 0}, {6, 5, 0}, {7, 5, 4}, {15, 6, 5}, {16, 3, 2}, {20, 5, 1}, {21, 5, 5}, {24, 1, 1}, {26, 0, 0},
			},
		},
		{
			makespan: 40, held: 6*15 + 2*5 + 3 + 5*5 + 15, used: 4*8 + 2*5 + 3 + 19 + 4*3, waits: 14,
			idle: trace.Idle{NotReady: 4*2 + 1 + 4, NotRunning: 4*5 + 2*15 + 4}, submitted: trace.Shares{Held: 1},
			curve: []trace.Step{
				{0, 6, 0}, {7, 6, 4}, {15, 5, 5}, {16, 2, 2}, {20, 5, 0}, {21, 5, 1}, {22, 5, 5}, {25, 1, 1}, {40, 0, 0},
			},
		},
	} {
		p := &report.Policies[i]
		got := usage{
			makespan: p.MakespanSeconds / minute, held: p.HeldSeconds / minute, used: p.UsedSeconds / minute, waits: p.Sizes[0].WaitAll.Max / minute,
			idle:      trace.Idle{NotReady: p.IdleSeconds.NotReady / minute, WaitsForStage: p.IdleSeconds.WaitsForStage / minute, NotRunning: p.IdleSeconds.NotRunning / minute},
			submitted: p.WhileSubmitted, curve: p.Curve,
		}
		for j := range got.curve {
			got.curve[j].At /= minute
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(usage{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", p.Policy, diff)
		}
	}
}
