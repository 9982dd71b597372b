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
	// took is how long the Job of each stage ran, by JobSet and stage: the replays take these durations.
	took, held := map[string]time.Duration{}, 0.0
	for _, js := range whole {
		for _, stage := range foretoldStages {
			job := childOf(ctx, js, stage.name)
			took[job.Name] = job.Status.CompletionTime.Sub(job.Status.StartTime.Time)
			held += float64(stage.gpus) * took[job.Name].Seconds()
		}
	}
	Expect(report.Resources[0].HeldStaged).To(Equal(held), "each stage holds its GPUs for as long as its Job ran")

	Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{})).To(Succeed())
	startBeside(ctx)
	tenant(ctx, "happened", foretoldGPUs)
	takeOver(ctx, "happened")
	staged := arriveIn(ctx, "happened", whole)
	seen := map[string]*course{}
	for _, js := range staged {
		awaitCompletion(ctx, js)
		seen[js.Name] = courseOf(ctx, js, took)
	}
	handBack(ctx, "happened")

	// The error of the simulator is what it leaves out: the time that the managers, the API server and the kubelets take, until a stage is admitted that
	// need not wait any longer, and by which it holds its quota longer than the Job of the same stage has run before. It adds up over stages that wait for
	// each other. Measured in 4 runs on a busy machine: 0 to 1 second of 4 for each stage, 0 to 1 for starts, of which the last one waits for a stage, 0 to 3
	// for finishes after 2 to 5 stages, and 2 to 10 percent of what is held. Times are whole seconds, and each comparison has two differences of them.
	const rounding = 2 * time.Second
	var runs []run
	for _, c := range seen {
		runs = append(runs, c.stages...)
	}
	slices.SortFunc(runs, func(a, b run) int { return a.to.Compare(b.to) })
	happened, worst, longer := 0.0, time.Duration(0), 0.0
	for i, js := range whole {
		is := seen[js.Name]
		happened += is.gpuSeconds
		longer = max(longer, is.longer)
		isForetold := predictionFor(&report, js)
		origin, now := whole[0].CreationTimestamp.Time, staged[0].CreationTimestamp.Time
		started, finished := isForetold.StartedStaged.Sub(origin)-is.started.Sub(now), isForetold.FinishedStaged.Sub(origin)-is.finished.Sub(now)
		toStart, toFinish := leftOut(runs, is.started)+is.stages[0].delay(runs), leftOut(runs, is.finished)
		worst = max(worst, started.Abs(), finished.Abs())
		GinkgoWriter.Printf("%s starts %s and finishes %s earlier than foretold, which leaves out %s and %s\n", js.Name, started, finished, toStart, toFinish)
		Expect(started.Abs()).To(BeNumerically("<=", toStart+rounding), js.Name)
		Expect(finished.Abs()).To(BeNumerically("<=", toFinish+rounding), js.Name)
		if i > 0 {
			Expect(is.started.Before(seen[whole[i-1].Name].started)).To(BeFalse(), "%s starts before %s", js.Name, whole[i-1].Name)
			Expect(isForetold.StartedStaged.Before(predictionFor(&report, whole[i-1]).StartedStaged)).To(BeFalse(), "%s is foretold to start before %s", js.Name, whole[i-1].Name)
		}
	}
	AddReportEntry("shadow", fmt.Sprintf("%.0f GPU-seconds held, %.0f foretold, %.0f as a whole; times are off by up to %s in stages, and by %.0fs as a whole",
		happened, held, report.Resources[0].Held, worst, report.Error.MaxSeconds))
	Expect(happened / held).To(And(BeNumerically("<=", 1+longer), BeNumerically(">=", 1/(1+longer))))
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

// A course is when a JobSet ran in stages, and what it held.
type course struct {
	started, finished time.Time
	stages            []run
	gpuSeconds        float64
	// longer is by which part of the duration that the replay knows a stage was longer or shorter, at most.
	longer float64
}

// A run is the time for which a stage held quota, since when it was due, and by how much it held quota longer than the replay knows.
type run struct {
	due, from, to time.Time
	longer        time.Duration
}

// delay returns for how long the stage was not admitted although nothing had to end any longer before.
func (r *run) delay(all []run) time.Duration {
	latest := r.due
	for i := range all {
		if other := all[i].to; other.After(latest) && !other.After(r.from) {
			latest = other
		}
	}
	return r.from.Sub(latest)
}

// courseOf returns the course of a JobSet. Jobs took so long when they ran before.
func courseOf(ctx context.Context, js *jobsetapi.JobSet, took map[string]time.Duration) *course {
	GinkgoHelper()
	c, due := &course{}, js.CreationTimestamp.Time
	for _, stage := range foretoldStages {
		w := stageOf(ctx, js, stage.name)
		since := func(name string) time.Time {
			return meta.FindStatusCondition(w.Status.Conditions, name).LastTransitionTime.Time
		}
		admitted, ended := since(kueue.WorkloadAdmitted), since(kueue.WorkloadFinished)
		if c.started.IsZero() {
			c.started = admitted
		}
		known := took[childOf(ctx, js, stage.name).Name]
		more := ended.Sub(admitted) - known
		c.finished, c.stages = ended, append(c.stages, run{due, admitted, ended, max(0, more)})
		due = ended
		c.gpuSeconds += float64(stage.gpus) * ended.Sub(admitted).Seconds()
		c.longer = max(c.longer, more.Abs().Seconds()/known.Seconds())
	}
	return c
}

// leftOut returns the most that the replay leaves out of stages, ordered by their ends, that can have waited for each other before a time: each ended before
// the next one began.
func leftOut(runs []run, until time.Time) time.Duration {
	sums, most := make([]time.Duration, len(runs)), time.Duration(0)
	for i := range runs {
		r := &runs[i]
		if r.to.After(until) {
			break
		}
		before := time.Duration(0)
		for k := range runs[:i] {
			if !runs[k].to.After(r.from) {
				before = max(before, sums[k])
			}
		}
		sums[i] = before + r.delay(runs) + r.longer
		most = max(most, sums[i])
	}
	return most
}
