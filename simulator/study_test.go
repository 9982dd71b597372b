package simulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestStudiesAgree compares a Study with an Inspection, a prediction and a Laboratory that each read the snapshot.
func TestStudiesAgree(t *testing.T) {
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		text := randomWorld(t)
		p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		pending := p.Pending()
		if len(pending) == 0 {
			return
		}
		if rapid.Bool().Draw(t, "configured") {
			p.Taken.Configuration = simulator.RandomConfiguration(t)
		}
		if rapid.Bool().Draw(t, "unready") {
			forgetReadiness(p.Taken)
		}
		d := &simulator.Durations{
			Termination: time.Duration(rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "termination")) * time.Second,
			Checks:      time.Duration(rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "checks")) * time.Second,
		}
		if rapid.Bool().Draw(t, "estimates") {
			d.Estimates = []simulator.Estimate{{Run: 7 * time.Minute, Ready: 30 * time.Second}}
		}
		first := rapid.IntRange(0, len(pending)-1).Draw(t, "first")
		keys := pending[first:min(len(pending), first+rapid.IntRange(1, 3).Draw(t, "count"))]
		difference, isShared := studyDifference(t, p.Taken, d, keys)
		if difference != "" {
			t.Fatalf("%v: %s\n%s", keys, difference, text)
		}
		if isShared {
			shared++
		}
	})
	if shared < 20 {
		t.Errorf("%d studies were shared", shared)
	}
}

// randomWorld draws a scenario of one of several kinds.
func randomWorld(t *rapid.T) string {
	switch rapid.IntRange(0, 2).Draw(t, "world") {
	case 0:
		return crowdedLines(t)
	case 1:
		text, _ := simulator.RandomLimits(t)
		return text
	}
	return strings.Join(slices.DeleteFunc(randomLines(t), func(line string) bool { return strings.HasPrefix(line, "fail-write") }), "")
}

// forgetReadiness lets the quota Workloads of other jobs than JobSets say nothing of pods.
func forgetReadiness(s *snapshot.Snapshot) {
	for i, w := range s.Workloads {
		if w.Labels[apis.JobSetLabel] == "" {
			s.Workloads[i] = w.DeepCopy()
			s.Workloads[i].Status.Conditions = slices.DeleteFunc(s.Workloads[i].Status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
		}
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// studyDifference returns in what a Study differs from an Inspection, a prediction and a Laboratory that each read the snapshot, or "".
func studyDifference(t fataler, s *snapshot.Snapshot, d *simulator.Durations, keys []admission.StageKey) (difference string, isShared bool) {
	t.Helper()
	study, err := simulator.NewStudy(s, d, keys...)
	if err != nil {
		t.Fatal(err)
	}
	isShared = study.IsShared()
	inspection, err := simulator.Inspect(s, keys...)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	compare := func(what string, want, got any) {
		if diff := gocmp.Diff(want, got, cmpopts.EquateErrors(), cmpopts.IgnoreUnexported(unblock.Set{})); diff != "" {
			all = append(all, fmt.Sprintf("%s: -want +got\n%s", what, diff))
		}
	}
	until := s.TakenAt.Add(24 * time.Hour)
	want, wantErr := simulator.ForecastOf(s, d, until, keys...)
	got, gotErr := study.Forecast(until)
	compare("errors", fmt.Sprint(wantErr), fmt.Sprint(gotErr))
	compare("predictions", want, got)
	compare("left out", inspection.LeftOut(), study.LeftOut())
	for _, key := range keys {
		wantWhy, wantIs := inspection.Why(key)
		gotWhy, gotIs := study.Why(key)
		compare("queued", wantIs, gotIs)
		compare("reasons", wantWhy, gotWhy)
		alone, shared := simulator.NewLaboratory(s, d, key), study.Laboratory(key)
		compare("size", alone.Size(), shared.Size())
		compare("running", alone.Running(), shared.Running())
		wantSets, err := unblock.Find(alone)
		if err != nil {
			t.Fatal(err)
		}
		gotSets, err := unblock.Find(shared)
		if err != nil {
			t.Fatal(err)
		}
		compare("sets", wantSets, gotSets)
	}
	return strings.Join(all, "\n"), isShared
}

// A studied is a snapshot of a scenario after five minutes, and what is different in it.
type studied struct {
	text      string
	durations simulator.Durations
	// change changes the snapshot.
	change func(*testing.T, *snapshot.Snapshot)
	// about are the jobs that are asked about, or x.
	about []string
}

const full = "queue ml gpu=4\nsubmit a queue=ml pods=gpu:4 max-time=1h\nsubmit x queue=ml pods=gpu:3 at=1m\n"

// TestSharedStudies: one simulation answers where nothing is due.
func TestSharedStudies(t *testing.T) {
	for name, c := range map[string]studied{
		"quota is missing": {text: full},
		"another quota Workload does not say that its pods are ready": {text: full, change: func(_ *testing.T, s *snapshot.Snapshot) { forgetReadiness(s) }},
		"the Jobs of the JobSet are not in the snapshot": {
			text:   "queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=4) ready-after=20s max-time=1h\nsubmit x queue=ml stages=p(gpu=3) at=1m\n",
			change: func(_ *testing.T, s *snapshot.Snapshot) { deleteJobs(s, "x") },
		},
		"a JobSet runs": {text: "queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=1)=Ready=>q(gpu=3) ready-after=20s max-time=1h\nsubmit x queue=ml stages=p(gpu=3) at=1m\n"},
		"a back-off lasts": {
			text: "config wait-for-pods-ready.timeout=2m wait-for-pods-ready.requeuing-strategy.backoff-base-seconds=1000\nqueue ml gpu=4\n" +
				"submit b queue=ml pods=gpu:1 ready-after=1h\nsubmit a queue=ml pods=gpu:4 at=4m\nsubmit x queue=ml pods=gpu:3 at=4m\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.agrees(t) {
				t.Error("it was not shared")
			}
		})
	}
}

// TestDueStudies: something is due at the time of the snapshot, so that the answers of one simulation could differ from those of three. It is not shared.
func TestDueStudies(t *testing.T) {
	for name, c := range map[string]studied{
		"the admission is not written":  {text: full, change: quota("8")},
		"the head is not yet admitted":  {text: strings.Replace(full, "gpu=4\n", "gpu=4 strategy=StrictFIFO\n", 1) + "submit y queue=ml pods=gpu:1 at=2m\n", change: quota("7"), about: []string{"y"}},
		"the preemption is not written": {text: strings.Replace(full, "gpu=4\n", "gpu=4 within=LowerPriority\n", 1), change: priority("x", 5)},
		"a stage opens":                 {text: "queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=1)=Ready=>q(gpu=3) ready-after=20s\nsubmit b queue=ml pods=gpu:3\nsubmit x queue=ml pods=gpu:3 at=1m\n", change: deleteWorkload("jobset-a-1-q-")},
		"a limit is reached":            {text: full, change: takenAfter(time.Hour)},
		"pods have succeeded":           {text: "queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=4)\nsubmit x queue=ml pods=gpu:3 at=1m\n", change: succeeded},
		"pods of a JobSet terminate":    {text: "queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=4) stop-after=10m\nsubmit x queue=ml pods=gpu:3 at=1m\ndelete a at=4m\n"},
		"pods of another job terminate": {text: "queue ml gpu=4\nsubmit a queue=ml pods=gpu:4 stop-after=10m\nsubmit x queue=ml pods=gpu:3 at=1m\ndelete a at=4m\n", durations: simulator.Durations{Termination: time.Minute}},
		"a ClusterQueue is deleted":     {text: "cohort lab\nqueue other gpu=2 cohort=lab\n" + strings.Replace(full, "gpu=4\n", "gpu=4 cohort=lab\n", 1), change: deleteQueue("other")},
		"an AdmissionCheck is pending": {
			text:      "admissioncheck c\nqueue ml gpu=4 checks=c\nsubmit a queue=ml pods=gpu:4 max-time=1h\nsubmit x queue=ml pods=gpu:3 at=1m\n",
			durations: simulator.Durations{Checks: time.Hour},
		},
		"a timeout has passed": {
			text: full, change: func(_ *testing.T, s *snapshot.Snapshot) {
				forgetReadiness(s)
				s.Configuration = &configapi.Configuration{WaitForPodsReady: configapi.WaitForPodsReady{Enable: new(true), Timeout: &metav1.Duration{Duration: time.Minute}}}
			},
		},
		"pods become ready that another stage waits for": {
			text:   "queue ml gpu=3\nsubmit a queue=ml stages=r(gpu=2);p(gpu=1)=Ready=>q(gpu=2);r=Succeeded=>q\nsubmit x queue=ml pods=gpu:2 at=1m\n",
			change: unready("p"),
		},
		"quota Workloads are admitted together": {
			text:   "queue ml gpu=4\nsubmit a queue=ml pods=gpu:2\nsubmit b queue=ml pods=gpu:3 at=30s\nsubmit x queue=ml pods=gpu:3 at=1m\n",
			change: together("a", "b"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.agrees(t) {
				t.Error("it was shared")
			}
		})
	}
}

// TestStudiesOfTrees: each Laboratory has only the queues that can influence when its quota Workload starts.
func TestStudiesOfTrees(t *testing.T) {
	c := studied{text: full + "queue other gpu=4\nsubmit b queue=other pods=gpu:4\nsubmit y queue=other pods=gpu:3 at=1m\n", about: []string{"x", "y"}}
	if !c.agrees(t) {
		t.Error("it was not shared")
	}
}

// TestStudyOfInvalidDurations: they are refused as a forecast does.
func TestStudyOfInvalidDurations(t *testing.T) {
	c := studied{text: full, durations: simulator.Durations{Estimates: []simulator.Estimate{{Run: -1}}}}
	c.agrees(t)
}

// agrees reports whether a Study was shared. It fails if the Study does not agree with separate simulations.
func (c *studied) agrees(t *testing.T) (isShared bool) {
	t.Helper()
	p, err := simulator.Pause("# story\n"+c.text, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if c.change != nil {
		c.change(t, p.Taken)
	}
	about := c.about
	if about == nil {
		about = []string{"x"}
	}
	keys := slices.DeleteFunc(p.Pending(), func(key admission.StageKey) bool {
		return !slices.ContainsFunc(about, func(name string) bool { return key.Name == name || strings.HasPrefix(key.Name, "jobset-"+name+"-") })
	})
	if len(keys) != len(about) {
		t.Fatalf("%v wait, not %v", keys, about)
	}
	difference, isShared := studyDifference(t, p.Taken, &c.durations, keys)
	if difference != "" {
		t.Error(difference)
	}
	return isShared
}

func deleteJobs(s *snapshot.Snapshot, jobSet string) {
	s.Jobs = slices.DeleteFunc(s.Jobs, func(job *batchv1.Job) bool { return strings.HasPrefix(job.Name, jobSet+"-") })
}

// changed changes copies of the quota Workloads that a name begins.
func changed(t *testing.T, s *snapshot.Snapshot, name string, change func(*kueue.Workload)) {
	t.Helper()
	i := slices.IndexFunc(s.Workloads, func(w *kueue.Workload) bool { return strings.HasPrefix(w.Name, name) })
	if i < 0 {
		t.Fatalf("no quota Workload %s", name)
	}
	s.Workloads[i] = s.Workloads[i].DeepCopy()
	change(s.Workloads[i])
}

func quota(amount string) func(*testing.T, *snapshot.Snapshot) {
	return func(_ *testing.T, s *snapshot.Snapshot) {
		s.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(amount)
	}
}

func priority(name string, value int32) func(*testing.T, *snapshot.Snapshot) {
	return func(t *testing.T, s *snapshot.Snapshot) {
		t.Helper()
		changed(t, s, name, func(w *kueue.Workload) { w.Spec.Priority = &value })
	}
}

func deleteWorkload(name string) func(*testing.T, *snapshot.Snapshot) {
	return func(t *testing.T, s *snapshot.Snapshot) {
		t.Helper()
		changed(t, s, name, func(*kueue.Workload) {})
		s.Workloads = slices.DeleteFunc(s.Workloads, func(w *kueue.Workload) bool { return strings.HasPrefix(w.Name, name) })
	}
}

func takenAfter(after time.Duration) func(*testing.T, *snapshot.Snapshot) {
	return func(_ *testing.T, s *snapshot.Snapshot) { s.TakenAt = s.TakenAt.Add(after) }
}

func succeeded(_ *testing.T, s *snapshot.Snapshot) {
	for i, job := range s.Jobs {
		s.Jobs[i] = job.DeepCopy()
		s.Jobs[i].Status.Active, s.Jobs[i].Status.Ready, s.Jobs[i].Status.Succeeded = 0, new(int32(0)), 1
	}
}

// unready lets the pods of a ReplicatedJob not be ready yet.
func unready(replicatedJob string) func(*testing.T, *snapshot.Snapshot) {
	return func(_ *testing.T, s *snapshot.Snapshot) {
		for i, job := range s.Jobs {
			if strings.Contains(job.Name, "-"+replicatedJob+"-") {
				s.Jobs[i] = job.DeepCopy()
				s.Jobs[i].Status.Ready = new(int32(0))
			}
		}
	}
}

func deleteQueue(name string) func(*testing.T, *snapshot.Snapshot) {
	return func(_ *testing.T, s *snapshot.Snapshot) {
		for _, q := range s.ClusterQueues {
			if q.Name == name {
				q.DeletionTimestamp = new(metav1.NewTime(s.TakenAt))
			}
		}
	}
}

// together lets quota Workloads be admitted together, and forgets whether their pods are ready.
func together(names ...string) func(*testing.T, *snapshot.Snapshot) {
	return func(t *testing.T, s *snapshot.Snapshot) {
		t.Helper()
		forgetReadiness(s)
		for _, name := range names {
			changed(t, s, name, func(w *kueue.Workload) {
				metav1.SetMetaDataLabel(&w.ObjectMeta, apis.AdmitTogetherLabel, "group")
				metav1.SetMetaDataAnnotation(&w.ObjectMeta, apis.AdmitTogetherCountAnnotation, fmt.Sprint(len(names)))
			})
		}
	}
}
