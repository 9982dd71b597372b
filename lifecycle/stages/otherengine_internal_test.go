package stages

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// otherEngine changes a snapshot to one of a JobSet that another engine admits.
func otherEngine(s *jobsetstate.Snapshot, unsafe map[string]string) {
	s.OtherEngine, s.Unsafe = true, unsafe
	for _, w := range s.Owned.Workloads {
		for i := range w.Spec.PodSets {
			st := &stage{Stage: &s.Plan.Stages[0], tallies: map[string]tally{"init": {replicas: 1}, "train": {replicas: 1}}}
			if w.Name == "train" {
				st.Stage = &s.Plan.Stages[1]
			}
			w.Spec.PodSets[i].TopologyRequest = st.newPodSet(s, i).TopologyRequest
		}
	}
}

// bar gives a quota Workload gates as Tranche gives them while another engine admits.
func bar(s *jobsetstate.Snapshot, name string, gates ...string) {
	for _, w := range s.Owned.Workloads {
		if w.Name == name {
			apimeta.SetStatusCondition(&w.Status.Conditions, quotaworkload.Bar(gates))
		}
	}
}

// reserve makes a quota Workload one whose quota is reserved and evicted, but which was not admitted.
func reserve(s *jobsetstate.Snapshot, name, evicted string) {
	for _, w := range s.Owned.Workloads {
		if w.Name == name {
			w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue})
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: evicted})
		}
	}
}

// reject makes a quota Workload one whose reservation an AdmissionCheck has rejected so many times in a row, the last time some time ago.
func reject(s *jobsetstate.Snapshot, name string, times int32, ago time.Duration) {
	bar(s, name, apis.StageGate)
	for _, w := range s.Owned.Workloads {
		if w.Name == name {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "booking"}, {Name: "safety", RetryCount: &times}}
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByAdmissionCheck, LastTransitionTime: metav1.NewTime(s.Now.Add(-ago)),
			})
		}
	}
}

// A stage that pauses says so, and is looked at again when the pause ends.
func TestPause(t *testing.T) {
	w := world{ready: true, started: true, workloads: map[string]string{"init": "admitted ready", "train": ""}, jobs: map[string]string{"init": "up", "train": "held"}}
	s := w.build(t)
	otherEngine(s, nil)
	s.Now = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	reject(s, "train", 5, time.Second)
	step := Next(s)
	c := apimeta.FindStatusCondition(step.Conditions, "StageAdmitted")
	want := `Waiting to admit stage 2/2 "train": quota was reserved for it and rejected by an AdmissionCheck 5 times in a row: it asks again at 2100-01-01T00:00:03Z`
	if c == nil || c.Message != want {
		t.Errorf("condition %+v, want the message %q", c, want)
	}
	if step.RequeueAfter != 3*time.Second {
		t.Errorf("requeued after %s, want 3s", step.RequeueAfter)
	}
	if opening := Opening(s); len(opening) > 0 {
		t.Errorf("%v would open", opening)
	}
}

// So does a growth, for which no one asks whether it is safe before it is queued.
func TestPauseOfGrowth(t *testing.T) {
	for ago, want := range map[time.Duration][]string{time.Second: nil, 4 * time.Second: {"bar growth-1="}} {
		running := world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running up", "train": "held"}}
		s := elasticWorld{running, 4, 2, []int32{2}, []string{"2 waiting"}}.build(t)
		otherEngine(s, nil)
		s.Now = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		reject(s, "growth-1", 5, ago)
		if diff := cmp.Diff(want, render(Next(s)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s after the rejection (-want +got):\n%s", ago, diff)
		}
	}
}

// finished is a world whose first stage has finished while the second one runs.
func finished(workload, job string) world {
	return world{started: true, workloads: map[string]string{"init": workload, "train": "admitted"}, jobs: map[string]string{"init": job, "train": "running"}}
}

// Kueue's manager removes its own finalizer from Workloads that it deletes.
func TestFinalizer(t *testing.T) {
	s := world{}.build(t)
	for _, c := range []struct {
		other bool
		want  string
	}{{false, "kueue.x-k8s.io/resource-in-use"}, {true, "tranche.dev/quota-in-use"}} {
		s.OtherEngine = c.other
		for _, w := range Next(s).Workloads(quotastep.Create) {
			if diff := cmp.Diff([]string{c.want}, w.Finalizers); diff != "" {
				t.Errorf("finalizers of %s (-want +got):\n%s", w.Name, diff)
			}
		}
	}
}

// restarted is a JobSet that has restarted while its second stage held quota.
func restarted(init, train string) world {
	return world{started: true, restarts: 1, workloads: map[string]string{"init": init, "train": train}, jobs: map[string]string{"init": "held", "train": "held"}}
}

func TestOtherEngine(t *testing.T) {
	unsafe := map[string]string{"train": "2 gpu would stay free"}
	running := world{
		ready: true, started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"},
		jobs: map[string]string{"init": "up", "train": "held"},
	}
	opened := running
	opened.workloads = map[string]string{"init": "admitted ready", "train": ""}
	for name, c := range map[string]struct {
		world  world
		unsafe map[string]string
		change func(*jobsetstate.Snapshot)
		want   []string
	}{
		"a stage that is safe opens":           {world: running, want: []string{"open train"}},
		"a stage that is not safe stays gated": {world: running, unsafe: unsafe},
		"a first stage that is not safe is created with the gate": {
			unsafe: map[string]string{"init": "1 cpu would stay free"},
			want:   []string{"create init gates=tranche.dev/stage", "create train gates=tranche.dev/stage"},
		},
		"a stage that has opened stays open": {world: opened, unsafe: unsafe},
		"a stage whose reservation is taken back is gated again": {
			world: opened, change: func(s *jobsetstate.Snapshot) { reserve(s, "train", kueue.WorkloadEvictedByAdmissionCheck) },
			want: []string{"bar train=tranche.dev/stage"},
		},
		"then it releases the reservation, and the other stage runs on": {
			world: opened, change: func(s *jobsetstate.Snapshot) {
				reserve(s, "train", kueue.WorkloadEvictedByAdmissionCheck)
				bar(s, "train", apis.StageGate)
			},
			want: []string{"give back train"},
		},
		"and waits until it is safe": {
			world: opened, unsafe: unsafe, change: func(s *jobsetstate.Snapshot) { bar(s, "train", apis.StageGate) },
		},
		"and opens again when it is": {
			world: opened, change: func(s *jobsetstate.Snapshot) { bar(s, "train", apis.StageGate) },
			want: []string{"bar train="},
		},
		"also when it was rejected three times in a row": {
			world: opened, change: func(s *jobsetstate.Snapshot) { reject(s, "train", 3, time.Second) },
			want: []string{"bar train="},
		},
		"then it pauses, twice as long each time": {
			world: opened, change: func(s *jobsetstate.Snapshot) { reject(s, "train", 5, 3*time.Second) },
		},
		"and opens after the pause": {
			world: opened, change: func(s *jobsetstate.Snapshot) { reject(s, "train", 5, 4*time.Second) },
			want: []string{"bar train="},
		},
		"no pause is longer than a minute": {
			world: opened, change: func(s *jobsetstate.Snapshot) { reject(s, "train", 1000, time.Minute) },
			want: []string{"bar train="},
		},
		"a stage that is evicted after it was admitted takes all others along": {
			world: world{
				ready: true, started: true, workloads: map[string]string{"init": "admitted", "train": "admitted evicted"},
				jobs: map[string]string{"init": "running", "train": "running"},
			},
			want: []string{"evict init", "bar train=tranche.dev/stage", "hold init-0", "hold train-0"},
		},
		"a deactivated reservation takes all others along": {
			world: opened, change: func(s *jobsetstate.Snapshot) {
				reserve(s, "train", kueue.WorkloadDeactivated)
				s.Owned.Workloads[1].Spec.Active = new(false)
			},
			want: []string{"evict init", "bar init=tranche.dev/deactivated", "bar train=tranche.dev/stage", "hold init-0", "ready init=False"},
		},
		"a suspended JobSet gets bars": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"bar init=tranche.dev/suspended", "bar train=tranche.dev/stage,tranche.dev/suspended"},
		},
		"a suspended JobSet with bars releases its quota": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			change: func(s *jobsetstate.Snapshot) {
				bar(s, "init", apis.SuspendedGate)
				bar(s, "train", apis.SuspendedGate)
			},
			want: []string{"give back init"},
		},
		"a stage with a bar releases no Job": {
			world:  world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			change: func(s *jobsetstate.Snapshot) { bar(s, "init", apis.ResizeGate) },
			want:   []string{"bar init="},
		},
		"a finished stage keeps its finalizer while its JobSet runs": {world: finished("finished pinned", "complete")},
		"also when its quota Workload is deleted, and its Jobs are":  {world: finished("finished pinned deleted", "held")},
		"a restart releases the record": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "finished pinned deleted attempt0", "train": "closed"}, jobs: map[string]string{"init": "held", "train": "held"}},
			want:  []string{"unpin init"},
		},
		"a restart closes a stage that has to wait again": {
			world: restarted("finished attempt0", "admitted attempt0"), want: []string{"bar train=tranche.dev/stage", "remove init"},
		},
		"which keeps its quota while its pods terminate": {
			world: restarted("", "admitted"), change: func(s *jobsetstate.Snapshot) {
				bar(s, "train", apis.StageGate)
				s.Owned.Pods = append(s.Owned.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train-0-0", Labels: map[string]string{jobset.ReplicatedJobNameKey: "train"}}})
			},
		},
		"and then releases it for the stages that it waits for": {
			world: restarted("", "admitted"), change: func(s *jobsetstate.Snapshot) { bar(s, "train", apis.StageGate) },
			want: []string{"give back train"},
		},
		"so does the end of the JobSet": {
			world: world{over: jobset.JobSetCompleted, started: true, workloads: map[string]string{"init": "finished pinned deleted", "train": "finished pinned"}, jobs: map[string]string{"init": "complete", "train": "complete"}},
			want:  []string{"unpin init", "unpin train"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			otherEngine(s, c.unsafe)
			s.Now = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) // nothing is too early to be written
			if c.change != nil {
				c.change(s)
			}
			isReadiness := func(line string) bool { return line == "ready init=True" }
			if diff := cmp.Diff(c.want, slices.DeleteFunc(render(Next(s)), isReadiness), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// Only the stages that would open now are asked about.
func TestOpening(t *testing.T) {
	for name, c := range map[string]struct {
		world world
		want  []string
	}{
		"a new JobSet":      {world{}, []string{"init"}},
		"all are open":      {world{ready: true, started: true, workloads: map[string]string{"init": "admitted", "train": ""}, jobs: map[string]string{"init": "up"}}, nil},
		"one is to open":    {world{ready: true, started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "up"}}, []string{"train"}},
		"one waits for Job": {world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "up"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			otherEngine(s, map[string]string{"init": "no", "train": "no"})
			if diff := cmp.Diff(c.want, Opening(s)); diff != "" {
				t.Errorf("opening (-want +got):\n%s", diff)
			}
		})
	}
}

// The condition of the JobSet says why a stage does not open.
func TestUnsafeStageIsReported(t *testing.T) {
	w := world{ready: true, started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "up"}}
	s := w.build(t)
	otherEngine(s, map[string]string{"train": "2 gpu would stay free"})
	c := apimeta.FindStatusCondition(Next(s).Conditions, "StageAdmitted")
	if want := `Waiting to admit stage 2/2 "train": 2 gpu would stay free`; c == nil || c.Message != want || c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v, want the message %q", c, want)
	}
}

// A pod of a topology is gated, and names its quota Workload, so that Kueue's manager can place it.
func TestReleasedToTopology(t *testing.T) {
	build := func(change func(*kueue.Workload)) *corev1.PodTemplateSpec {
		w := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}}
		s := w.build(t)
		otherEngine(s, nil)
		change(s.Owned.Workloads[0])
		step := Next(s)
		if len(step.ReleaseJobs) != 1 {
			t.Fatalf("releases %v, complaints %v", step.ReleaseJobs, step.Complaints)
		}
		return &step.ReleaseJobs[0].Jobs[0].Spec.Template
	}
	plain := build(func(*kueue.Workload) {})
	if diff := cmp.Diff(map[string]string{kueue.WorkloadAnnotation: "init"}, plain.Annotations); diff != "" || len(plain.Spec.SchedulingGates) > 0 {
		t.Errorf("without a topology: gates %v, annotations (-want +got):\n%s", plain.Spec.SchedulingGates, diff)
	}
	assign := func(w *kueue.Workload) {
		w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
	}
	placed := build(assign)
	want := map[string]string{kueue.WorkloadAnnotation: "init", kueue.PodSetUnconstrainedTopologyAnnotation: "true"}
	if diff := cmp.Diff(want, placed.Annotations); diff != "" {
		t.Errorf("of no topology request: annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}, placed.Spec.SchedulingGates); diff != "" {
		t.Errorf("gates (-want +got):\n%s", diff)
	}
	asked := build(func(w *kueue.Workload) {
		assign(w)
		w.Spec.PodSets[0].TopologyRequest.Required = new("rack")
	})
	if _, ok := asked.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation]; ok {
		t.Error("a pod set that requires a topology must not be unconstrained")
	}
}
