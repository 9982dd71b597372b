package simulator

import (
	"fmt"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// twoPods has a stage that a user can make smaller and larger. The last size fits: a JobSet that asks for more than the quota cannot end.
const twoPods = "queue ml gpu=2\nsubmit a queue=ml stages=train(2*gpu=1) stop-after=1m\n"

var shrinkAndGrow = []string{"resize a/train pods=1", "resize a/train pods=2"}

// smallWorlds have one kind of adverse event each.
func smallWorlds() []*world {
	const contenders = "queue ml gpu=3\n" +
		"submit a queue=ml stages=data(gpu=1)=Ready=>train(gpu=2) restarts=1 stop-after=1m\n" +
		"submit b queue=ml stages=train(gpu=2) stop-after=1m\n"
	return []*world{
		{name: "the manager dies", reserveAfter: "0s", text: contenders, budget: [adversities]int8{crashes: 1}},
		{name: "a user intervenes", reserveAfter: "0s", text: contenders, budget: [adversities]int8{interventions: 1}},
		{name: "a pod fails", reserveAfter: "0s", text: contenders, budget: [adversities]int8{failures: 1}},
		{
			name: "quota is cut", reserveAfter: "0s", text: contenders, budget: [adversities]int8{cuts: 1},
			cut: "change queue ml gpu=1", restore: "change queue ml gpu=3",
		},
		{
			name: "a check answers", budget: [adversities]int8{retries: 1},
			text: "admissioncheck capacity\nqueue ml gpu=2 checks=capacity\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "a stage grows and shrinks", budget: [adversities]int8{crashes: 1},
			text:  "queue ml gpu=3\nsubmit a queue=ml stages=train(gpu=1) stop-after=1m\n",
			later: []string{"resize a/train pods=2", "resize a/train pods=1"},
		},
		{
			name: "one step at a time", steps: true, budget: [adversities]int8{crashes: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "one step at a time, a write fails", steps: true, budget: [adversities]int8{faults: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{name: "one step at a time, a stage shrinks and grows", steps: true, text: twoPods, later: shrinkAndGrow},
		{
			name: "one step at a time, a growth never fits", steps: true,
			text:  "queue ml gpu=1\nsubmit a queue=ml stages=train(gpu=1) stop-after=1m\n",
			later: []string{"resize a/train pods=2", "resize a/train pods=1"},
		},
		{
			name: "a cache lags", steps: true, budget: [adversities]int8{lags: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "a job beside a JobSet, and a user", reserveAfter: "0s", budget: [adversities]int8{interventions: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=train(gpu=1) stop-after=1m\nsubmit b queue=ml pods=2*gpu:1 stop-after=1m\n",
		},
		{
			name: "one step at a time, a gang of pods", steps: true, budget: [adversities]int8{crashes: 1},
			text: "queue ml gpu=2\n", gangs: []gang{{kind: podgroup.Kueue, name: "g", pods: 2}},
		},
		{
			name: "one step at a time, a gang that gathers its quota", steps: true, budget: [adversities]int8{crashes: 1},
			text: "queue ml gpu=2\n", gangs: []gang{{kind: podgroup.Lightweight, name: "g", pods: 2, mode: "NonStrict", isOwned: true}},
		},
	}
}

const lenders = "cohort lab\nqueue x gpu=2 cohort=lab\nqueue y gpu=0 cohort=lab\n"

// streamWorlds have small jobs that come again and again. A large JobSet starts nevertheless (I7).
func streamWorlds() []*world {
	return []*world{
		{
			name: "small jobs in the queue of a large JobSet", reserveAfter: "0s", text: "queue ml gpu=2\n",
			stream: []string{"submit a queue=ml pods=gpu:1", "submit b queue=ml pods=gpu:1"},
			large:  "large", later: []string{"submit large queue=ml stages=train(gpu=2)"},
		},
		{
			name: "small jobs that borrow what a large JobSet needs", reserveAfter: "0s", text: lenders,
			stream: []string{"submit a queue=y pods=gpu:1", "submit b queue=y pods=gpu:1"},
			large:  "large", later: []string{"submit large queue=x stages=train(gpu=2)"},
		},
	}
}

// gangWorlds have gangs of pods, alone and beside JobSets and jobs.
func gangWorlds() []*world {
	const alone = "queue ml gpu=2\n"
	const preemptor = "queue ml gpu=2 within=LowerPriority\n"
	bare := []gang{{kind: podgroup.Kueue, name: "g", pods: 2}}
	owned := []gang{{kind: podgroup.Kueue, name: "g", pods: 2, isOwned: true}}
	split := []gang{{kind: podgroup.Lightweight, name: "g", pods: 2, mode: "NonStrict", isOwned: true, isSplit: true}}
	single := []gang{{kind: podgroup.Kueue, name: "g", pods: 1}}
	later := []string{"submit b queue=ml pods=2*gpu:1 priority=1 stop-after=1m"}
	return []*world{
		{name: "a gang, a lag", steps: true, text: alone, gangs: bare, budget: [adversities]int8{lags: 1}},
		{name: "a gang, a write fails", steps: true, text: alone, gangs: bare, budget: [adversities]int8{faults: 1}},
		{name: "a gang, a user", steps: true, text: alone, gangs: bare, budget: [adversities]int8{interventions: 1}},
		{name: "a gang, a pod fails", steps: true, text: alone, gangs: owned, budget: [adversities]int8{failures: 1}},
		{name: "a gang, crash and user", steps: true, text: alone, gangs: owned, budget: [adversities]int8{crashes: 1, interventions: 1}},
		{name: "a gang, a lag and a pod fails", steps: true, text: alone, gangs: owned, budget: [adversities]int8{lags: 1, failures: 1}},
		{name: "a gang that is preempted, crash", steps: true, text: preemptor, gangs: owned, later: later, budget: [adversities]int8{crashes: 1}},
		{name: "a gang beside a JobSet", steps: true, gangs: single, text: "queue ml gpu=1\nsubmit a queue=ml stages=train(gpu=1)\n"},
		{name: "a gang in parts of two Jobs that is preempted", steps: true, text: preemptor, gangs: split, later: later},
		{
			name: "a gang beside a job, and a user", steps: true, gangs: single, budget: [adversities]int8{interventions: 1},
			text: "queue ml gpu=1\nsubmit b queue=ml pods=gpu:1\n",
		},
		{
			name: "a job beside a JobSet, crash and failure", budget: [adversities]int8{crashes: 1, failures: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) restarts=1 stop-after=1m\n" +
				"submit b queue=ml pods=gpu:1 stop-after=1m\n",
		},
		{
			name: "a job that preempts a JobSet, crash and user", budget: [adversities]int8{crashes: 1, interventions: 1},
			text:  "queue ml gpu=2 within=LowerPriority\nsubmit a queue=ml stages=data(gpu=1)=Ready=>train(gpu=1) stop-after=1m\n",
			later: []string{"submit b queue=ml pods=2*gpu:1 priority=1 stop-after=1m"},
		},
	}
}

// laggingWorlds have caches that lag, and more that happens.
func laggingWorlds() []*world {
	const inOrder = "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n"
	return []*world{
		{name: "two lags", steps: true, text: inOrder, budget: [adversities]int8{lags: 2}},
		{name: "a lag and a crash", steps: true, text: inOrder, budget: [adversities]int8{lags: 1, crashes: 1}},
		{name: "a lag and a user", steps: true, text: inOrder, budget: [adversities]int8{lags: 1, interventions: 1}},
		{
			name: "a lag and a failure", steps: true, budget: [adversities]int8{lags: 1, failures: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=1) restarts=1 stop-after=1m\n",
		},
		{
			name: "a lag and two contenders", steps: true, budget: [adversities]int8{lags: 1},
			text: "queue ml gpu=1\nsubmit a queue=ml stages=train(gpu=1) stop-after=1m\nsubmit b queue=ml stages=train(gpu=1) stop-after=1m\n",
		},
		{name: "a lag, and a stage shrinks and grows", steps: true, text: twoPods, later: shrinkAndGrow, budget: [adversities]int8{lags: 1}},
	}
}

// largeWorlds combine kinds of adverse events.
func largeWorlds() []*world {
	const cohort = "cohort lab\nqueue x gpu=2 cohort=lab reclaim=Any\nqueue y gpu=1 cohort=lab\n"
	const handOver = "queue ml gpu=3\nsubmit a queue=ml stages=data(gpu=1)=Ready=>train(gpu=2) restarts=1 stop-after=1m\n" +
		"submit b queue=ml stages=train(gpu=2) stop-after=1m\n"
	const serving = "submit %s queue=ml stages=ps(gpu=1)=Ready=>train(gpu=3) success=train stop-after=1m\n"
	const steps = "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=1) restarts=1 stop-after=1m\n"
	return []*world{
		{name: "hand-over, crash and user", reserveAfter: "0s", text: handOver, budget: [adversities]int8{crashes: 1, interventions: 1}},
		{name: "hand-over, crash and failure", text: handOver, budget: [adversities]int8{crashes: 1, failures: 1}},
		{name: "hand-over, user and failure", reserveAfter: "0s", text: handOver, budget: [adversities]int8{interventions: 1, failures: 1}},
		{
			name: "hand-over, crash and cut", reserveAfter: "0s", text: handOver, budget: [adversities]int8{crashes: 1, cuts: 1},
			cut: "change queue ml gpu=1", restore: "change queue ml gpu=3",
		},
		{
			name: "three stages and a preemptor", reserveAfter: "0s", budget: [adversities]int8{crashes: 1},
			text: "queue ml gpu=3 within=LowerPriority\n" +
				"submit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2)=Ready=>test(gpu=1) restarts=1 stop-after=1m\n",
			later: []string{"submit b queue=ml stages=train(gpu=2) priority=1 stop-after=1m"},
		},
		{
			name: "reclaim in a cohort", reserveAfter: "0s", budget: [adversities]int8{crashes: 1, interventions: 1},
			text:  cohort + "submit a queue=y stages=ps(gpu=1)=Ready=>train(gpu=2) stop-after=1m\n",
			later: []string{"submit b queue=x stages=train(gpu=2) stop-after=1m"},
		},
		{
			name: "a cut in a cohort", budget: [adversities]int8{crashes: 1, cuts: 1},
			text:  cohort + "submit a queue=y stages=ps(gpu=1)=Ready=>train(gpu=2) stop-after=1m\n",
			later: []string{"submit b queue=x stages=train(gpu=2) stop-after=1m"},
			cut:   "change queue y gpu=0", restore: "change queue y gpu=1",
		},
		{
			name: "a check answers, crash and user", reserveAfter: "0s", budget: [adversities]int8{crashes: 1, interventions: 1, retries: 1},
			text: "admissioncheck capacity\nqueue ml gpu=2 checks=capacity\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "a growth and a contender, crash and failure", reserveAfter: "0s", budget: [adversities]int8{crashes: 1, failures: 1},
			text: "queue ml gpu=3\nsubmit a queue=ml stages=train(gpu=1) restarts=1 stop-after=1m\n" +
				"submit b queue=ml stages=train(gpu=2) stop-after=1m\n",
			later: []string{"resize a/train pods=2", "resize a/train pods=1"},
		},
		{
			name: "three JobSets that could deadlock", reserveAfter: "0s", budget: [adversities]int8{crashes: 1}, servers: []string{"ps"},
			text: "queue ml gpu=4\n" + fmt.Sprintf(serving, "a") + fmt.Sprintf(serving, "b") + "submit c queue=ml stages=train(gpu=2) stop-after=1m\n",
		},
		{
			name: "small jobs in the queue of a JobSet of three stages, crash", reserveAfter: "0s", text: "queue ml gpu=2\n", budget: [adversities]int8{crashes: 1},
			stream: []string{"submit a queue=ml pods=gpu:1", "submit b queue=ml pods=gpu:1"},
			large:  "large", later: []string{"submit large queue=ml stages=data(gpu=1)=Ready=>train(gpu=1)=Succeeded=>test(gpu=1)"},
		},
		{
			name: "small jobs that borrow what a large JobSet needs, crash", reserveAfter: "0s", text: lenders, budget: [adversities]int8{crashes: 1},
			stream: []string{"submit a queue=y pods=gpu:1", "submit b queue=y pods=gpu:1"},
			large:  "large", later: []string{"submit large queue=x stages=train(gpu=2)"},
		},
		{
			name: "one step at a time, crash and a stage that shrinks and grows", steps: true, budget: [adversities]int8{crashes: 1},
			text: twoPods, later: shrinkAndGrow,
		},
		{
			name: "one step at a time, a write fails, and a user", steps: true, budget: [adversities]int8{faults: 1, interventions: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=train(gpu=2) stop-after=1m\n",
		},
		{
			name: "one step at a time, a write fails, and a stage shrinks and grows", steps: true, budget: [adversities]int8{faults: 1},
			text: twoPods, later: shrinkAndGrow,
		},
		{name: "one step at a time, crash and failure", steps: true, text: steps, budget: [adversities]int8{failures: 1, crashes: 1}},
		{
			name: "one step at a time, crash and user", steps: true, budget: [adversities]int8{crashes: 1, interventions: 1},
			text: "queue ml gpu=2\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "one step at a time, user and two stages that run", steps: true, budget: [adversities]int8{interventions: 1},
			text: "queue ml gpu=3\nsubmit a queue=ml stages=data(gpu=1)=Ready=>train(gpu=2) stop-after=1m\n",
		},
		{
			name: "one step at a time, two contenders", steps: true, budget: [adversities]int8{interventions: 1},
			text: "queue ml gpu=1\nsubmit a queue=ml stages=train(gpu=1) stop-after=1m\nsubmit b queue=ml stages=train(gpu=1) stop-after=1m\n",
		},
	}
}
