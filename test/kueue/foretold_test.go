package kueue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	// foretold is how many JobSets arrive, and foretoldEvery how long after each other.
	foretold      = 4
	foretoldEvery = time.Second
	// stageSeconds is how long the pods of each stage run.
	stageSeconds = 3
	// foretoldGPUs are those of the queue: as a whole, one JobSet needs all of them.
	foretoldGPUs = 6
)

// foretoldStages are the GPUs of the stages of each JobSet.
var foretoldStages = []struct {
	name string
	gpus int32
}{{"prepare", 2}, {"train", 4}}

// The same JobSets arrive twice: when Kueue admits them as a whole, and when Tranche admits their stages in the tree that was taken over.
func expectForetold(ctx SpecContext) {
	GinkgoHelper()
	tenant(ctx, "foretold", foretoldGPUs)
	out, stop := watchShadow(ctx)
	whole := arriveIn(ctx, "foretold", nil)
	for _, js := range whole {
		Eventually(read(ctx, js)).WithContext(ctx).Should(HaveField("Status.TerminalState", string(jobset.JobSetCompleted)))
	}
	stop()
	var report shadow.Report
	Expect(json.Unmarshal(out.Bytes(), &report)).To(Succeed())
	Expect(report.Starts.Earlier).To(Equal(foretold-1), "as a whole each waits for those before")
	Expect(report.Resources).To(ConsistOf(HaveField("Name", gpu)))
	slowest := time.Duration(0)
	for _, js := range whole {
		for _, stage := range foretoldStages {
			job := childOf(ctx, js, stage.name)
			slowest = max(slowest, job.Status.CompletionTime.Sub(job.Status.StartTime.Time)-stageSeconds*time.Second)
		}
	}

	Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{})).To(Succeed())
	startBeside(ctx)
	tenant(ctx, "happened", foretoldGPUs)
	takeOver(ctx, "happened")
	staged := arriveIn(ctx, "happened", whole)
	seen := map[string]*course{}
	for _, js := range staged {
		awaitCompletion(ctx, js)
		seen[js.Name] = courseOf(ctx, js)
		slowest = max(slowest, seen[js.Name].slowest)
	}
	handBack(ctx, "happened")

	// The replay does not know for how long the managers, the API server and the kubelets take: per stage at most what the slowest of all has taken, and a
	// second, since times are whole seconds. That adds up over the stages that wait for each other.
	perStage := slowest + time.Second
	happened := 0.0
	for i, js := range whole {
		is := seen[js.Name]
		happened += is.gpuSeconds
		isForetold := predictionFor(&report, js)
		origin, now := whole[0].CreationTimestamp.Time, staged[0].CreationTimestamp.Time
		started, finished := isForetold.StartedStaged.Sub(origin)-is.started.Sub(now), isForetold.FinishedStaged.Sub(origin)-is.finished.Sub(now)
		GinkgoWriter.Printf("%s starts %s and finishes %s earlier than foretold, after %d and %d stages that wait for each other, each off by up to %s\n",
			js.Name, started, finished, longestChain(seen, is.started), longestChain(seen, is.finished), perStage)
		Expect(started.Abs()).To(BeNumerically("<=", time.Duration(longestChain(seen, is.started)+1)*perStage), js.Name)
		Expect(finished.Abs()).To(BeNumerically("<=", time.Duration(longestChain(seen, is.finished)+1)*perStage), js.Name)
		if i > 0 {
			Expect(is.started.Before(seen[whole[i-1].Name].started)).To(BeFalse(), "%s starts before %s", js.Name, whole[i-1].Name)
			Expect(isForetold.StartedStaged.Before(predictionFor(&report, whole[i-1]).StartedStaged)).To(BeFalse(), "%s is foretold to start before %s", js.Name, whole[i-1].Name)
		}
	}
	ratio, mostRatio := happened/report.Resources[0].HeldStaged, 1+perStage.Seconds()/stageSeconds
	AddReportEntry("shadow", fmt.Sprintf("%.0f GPU-seconds held, %.0f foretold, %.0f as a whole; per stage up to %s are not simulated", happened, report.Resources[0].HeldStaged, report.Resources[0].Held, perStage))
	Expect(ratio).To(And(BeNumerically("<=", mostRatio), BeNumerically(">=", 1/mostRatio)))
	Expect(happened).To(BeNumerically("<", report.Resources[0].Held), "stages hold less than whole JobSets")
}

// arriveIn creates the JobSets, one after the other, at the times at which others were created if there are any.
func arriveIn(ctx context.Context, namespace string, like []*jobsetapi.JobSet) []*jobsetapi.JobSet {
	GinkgoHelper()
	began := time.Now()
	var all []*jobsetapi.JobSet
	for i := range foretold {
		due := time.Duration(i) * foretoldEvery
		if like != nil {
			due = like[i].CreationTimestamp.Sub(like[0].CreationTimestamp.Time)
		}
		select {
		case <-time.After(time.Until(began.Add(due))): // an arrival, which waits for nothing
		case <-ctx.Done():
		}
		js := foretoldJobSet(namespace, fmt.Sprintf("js-%d", i))
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		all = append(all, js)
	}
	return all
}

func foretoldJobSet(namespace, name string) *jobsetapi.JobSet {
	js := stagedJobSet(namespace, map[string]string{apis.QueueLabel: "queue"}, fmt.Sprint(stageSeconds))
	js.Name, js.Spec.ReplicatedJobs = name, nil
	for _, stage := range foretoldStages {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, sample.ReplicatedJob(
			stage.name, stage.gpus, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: fmt.Sprint(stageSeconds)}))
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: foretoldStages[0].name, Status: jobset.DependencyComplete}}
	return js
}

// predictionFor returns when a JobSet starts and finishes in the replay in stages. The report has only those whose times differ.
func predictionFor(report *shadow.Report, js *jobsetapi.JobSet) shadow.Difference {
	GinkgoHelper()
	for _, d := range report.Differences {
		if d.Name == js.Name {
			return d
		}
	}
	same := shadow.Difference{StartedStaged: js.CreationTimestamp.Time}
	same.FinishedStaged = meta.FindStatusCondition(js.Status.Conditions, string(jobset.JobSetCompleted)).LastTransitionTime.Time
	return same
}

// A course is when a JobSet ran in stages, and what it held. Its slowest stage has taken so much longer than its pods.
type course struct {
	started, finished time.Time
	stages            []run
	gpuSeconds        float64
	slowest           time.Duration
}

// A run is the time for which a stage held quota.
type run struct{ from, to time.Time }

func courseOf(ctx context.Context, js *jobsetapi.JobSet) *course {
	GinkgoHelper()
	c := &course{}
	for _, stage := range foretoldStages {
		w := stageOf(ctx, js, stage.name)
		since := func(name string) time.Time {
			return meta.FindStatusCondition(w.Status.Conditions, name).LastTransitionTime.Time
		}
		admitted, ended := since(kueue.WorkloadAdmitted), since(kueue.WorkloadFinished)
		if c.started.IsZero() {
			c.started = admitted
		}
		c.finished, c.stages = ended, append(c.stages, run{admitted, ended})
		c.gpuSeconds += float64(stage.gpus) * ended.Sub(admitted).Seconds()
		c.slowest = max(c.slowest, ended.Sub(admitted)-stageSeconds*time.Second)
	}
	return c
}

// longestChain returns how many stages can have waited for each other before a time: each ended before the next one began.
func longestChain(all map[string]*course, until time.Time) int {
	var runs []run
	for _, c := range all {
		runs = append(runs, c.stages...)
	}
	slices.SortFunc(runs, func(a, b run) int { return a.to.Compare(b.to) })
	longest, most := make([]int, len(runs)), 0
	for i, r := range runs {
		if r.to.After(until) {
			break
		}
		longest[i] = 1
		for j, before := range runs[:i] {
			if !before.to.After(r.from) {
				longest[i] = max(longest[i], longest[j]+1)
			}
		}
		most = max(most, longest[i])
	}
	return most
}
