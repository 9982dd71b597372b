package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// queues exist by name; a LocalQueue has the name of its ClusterQueue.
type queues map[string]bool

func (q queues) ClusterQueueExists(name string) bool            { return q[name] }
func (q queues) LocalQueueExists(key types.NamespacedName) bool { return q[key.Name] }
func (q queues) CohortsOf(string) []string                      { return nil }
func (q queues) CohortIsNamed(string) bool                      { return false }

// A life is the history of a quota Workload, as a Recorder observes it.
type life struct {
	metrics  *metrics.Metrics
	recorder *metrics.Recorder
	workload *kueue.Workload
	queues
	clock   time.Time
	version int
	// timeline is the timeline of the JobSet, for tests that note something.
	timeline apis.Timeline
}

// NotReadySince returns the NotReadySince of the timeline.
func (l *life) NotReadySince(workload *kueue.Workload) time.Time {
	return jobsetstatus.NotReadySince(&l.timeline, "train", workload)
}

// note counts the quota until now, as the controller of the JobSet does before times are lost.
func (l *life) note(h jobsetstatus.Hold) {
	h.Stage, h.Workload, h.End = "train", l.workload, l.clock
	h.Count(&l.timeline, []string{"train"})
}

// restart continues with another manager.
func (l *life) restart() {
	l.recorder = metrics.NewRecorder(l, l.metrics, func() time.Time { return l.clock })
}

func newLife(queue string, replica metrics.Replica) *life {
	l := &life{queues: queues{queue: true}, clock: start(), workload: newWorkload(queue, "w", "1"), metrics: metrics.New(replica)}
	l.recorder = metrics.NewRecorder(l, l.metrics, func() time.Time { return l.clock })
	return l
}

// change is one write, the given number of seconds later.
func (l *life) change(seconds int, f func(*kueue.Workload)) {
	before := l.workload.DeepCopy()
	l.clock = l.clock.Add(time.Duration(seconds) * time.Second)
	l.version++
	l.workload.ResourceVersion = fmt.Sprint(l.version)
	f(l.workload)
	l.recorder.Changed(before, l.workload)
}

// set writes conditions such as "Admitted=True Admitted".
func (l *life) set(seconds int, conditions ...string) {
	l.change(seconds, func(w *kueue.Workload) {
		for _, text := range conditions {
			conditionType, rest, _ := strings.Cut(text, "=")
			status, reason, _ := strings.Cut(rest, " ")
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
				Type: conditionType, Status: metav1.ConditionStatus(status), Reason: reason, LastTransitionTime: metav1.NewTime(l.clock),
			})
			if conditionType == kueue.WorkloadQuotaReserved {
				w.Status.Admission = nil
				if status == "True" {
					w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(w.Spec.QueueName)}
				}
			}
		}
	})
}

// recorded lists the counters and histograms of a queue, histograms with the sum of what was observed.
func recorded(t *testing.T, from *metrics.Metrics, queue string) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, v := range from.Collectors() {
		registry.MustRegister(v)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			ours := false
			for _, l := range m.GetLabel() {
				switch {
				case l.GetValue() == queue:
					ours = true
				case l.GetName() != "namespace" && l.GetName() != "replica_role" && l.GetName() != "priority_class" && l.GetValue() != "":
					labels = append(labels, l.GetValue())
				}
			}
			line := strings.Join(append([]string{f.GetName()}, labels...), " ")
			if h := m.GetHistogram(); h != nil {
				line += fmt.Sprintf(" %d in %gs", h.GetSampleCount(), h.GetSampleSum())
			} else {
				line += fmt.Sprintf(" %g", m.GetCounter().GetValue())
			}
			if ours {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func (l *life) want(t *testing.T, queue string, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, recorded(t, l.metrics, queue), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestLifeOfAQuotaWorkload(t *testing.T) {
	l := newLife("life", metrics.Replica{Elected: elected()})
	l.set(10, "QuotaReserved=True QuotaReserved")
	l.set(5, "Admitted=True Admitted")
	l.set(20, "PodsReady=True Started")
	l.set(1, "PodsReady=False WaitForRecovery")
	l.set(1, "PodsReady=True Recovered")
	l.set(100, "Finished=True Succeeded")
	l.want(t, "life",
		"kueue_admission_checks_wait_time_seconds 1 in 5s",
		"kueue_admission_wait_time_seconds 1 in 15s",
		"kueue_admitted_until_ready_wait_time_seconds 1 in 20s",
		"kueue_admitted_workloads_total 1",
		"kueue_finished_workloads_total 1",
		"kueue_local_queue_admission_checks_wait_time_seconds 1 in 5s",
		"kueue_local_queue_admission_wait_time_seconds 1 in 15s",
		"kueue_local_queue_admitted_until_ready_wait_time_seconds 1 in 20s",
		"kueue_local_queue_admitted_workloads_total 1",
		"kueue_local_queue_finished_workloads_total 1",
		"kueue_local_queue_quota_reserved_wait_time_seconds 1 in 10s",
		"kueue_local_queue_quota_reserved_workloads_total 1",
		"kueue_local_queue_ready_wait_time_seconds 1 in 35s",
		"kueue_quota_reserved_wait_time_seconds 1 in 10s",
		"kueue_quota_reserved_workloads_total 1",
		"kueue_ready_wait_time_seconds 1 in 35s",
		"tranche_stage_hold_seconds finished 1 in 127s",
		"tranche_stage_wait_seconds first 1 in 15s",
	)
}

func TestEvictions(t *testing.T) {
	l := newLife("evictions", metrics.Replica{Elected: elected()})
	for n := range int32(2) {
		l.set(1, "QuotaReserved=True QuotaReserved", "Evicted=False QuotaReserved")
		l.change(60, func(w *kueue.Workload) {
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToAdmissionCheck", LastTransitionTime: metav1.NewTime(l.clock),
			})
			w.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{
				{Reason: "Deactivated", UnderlyingCause: "AdmissionCheck", Count: n + 1}, {Reason: "Preempted", Count: 1},
			}}
		})
		l.set(2, "QuotaReserved=False Pending")
	}
	l.wantSome(t, "evictions", "evict",
		"kueue_evicted_workloads_once_total Deactivated AdmissionCheck 1",
		"kueue_evicted_workloads_total Deactivated AdmissionCheck 2",
		"kueue_local_queue_evicted_workloads_total Deactivated AdmissionCheck 2",
		"kueue_workload_eviction_latency_seconds Deactivated 2 in 4s",
		"tranche_stage_hold_seconds evicted 2 in 124s",
	)
}

// TestCausesOfEvictions: the cause of a timeout is only in the statistics, and a first eviction is one of its reason and cause.
func TestCausesOfEvictions(t *testing.T) {
	l := newLife("causes", metrics.Replica{Elected: elected()})
	counts := map[kueue.EvictionUnderlyingCause]int32{}
	for _, cause := range []kueue.EvictionUnderlyingCause{kueue.WorkloadWaitForStart, kueue.WorkloadWaitForRecovery, kueue.WorkloadWaitForStart} {
		l.set(1, "QuotaReserved=True QuotaReserved", "Evicted=False QuotaReserved")
		counts[cause]++
		l.change(60, func(w *kueue.Workload) {
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "PodsReadyTimeout", LastTransitionTime: metav1.NewTime(l.clock),
			})
			w.Status.SchedulingStats = &kueue.SchedulingStats{}
			for _, known := range []kueue.EvictionUnderlyingCause{kueue.WorkloadWaitForStart, kueue.WorkloadWaitForRecovery} {
				if counts[known] > 0 {
					w.Status.SchedulingStats.Evictions = append(w.Status.SchedulingStats.Evictions,
						kueue.WorkloadSchedulingStatsEviction{Reason: "PodsReadyTimeout", UnderlyingCause: known, Count: counts[known]})
				}
			}
		})
		l.set(2, "QuotaReserved=False Pending")
	}
	l.wantSome(t, "causes", "kueue_evicted",
		"kueue_evicted_workloads_once_total PodsReadyTimeout WaitForRecovery 1",
		"kueue_evicted_workloads_once_total PodsReadyTimeout WaitForStart 1",
		"kueue_evicted_workloads_total PodsReadyTimeout WaitForRecovery 1",
		"kueue_evicted_workloads_total PodsReadyTimeout WaitForStart 2",
	)
}

// wantSome compares the lines that have a part.
func (l *life) wantSome(t *testing.T, queue, part string, lines ...string) {
	t.Helper()
	got := slices.DeleteFunc(recorded(t, l.metrics, queue), func(line string) bool { return !strings.Contains(line, part) })
	slices.Sort(lines)
	if diff := cmp.Diff(lines, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("recorded with %q (-want +got):\n%s", part, diff)
	}
}

func TestStageWaitBeginsWhenTheStageOpens(t *testing.T) {
	gated := func(w *kueue.Workload) {
		w.Labels = map[string]string{apis.StageIndexLabel: "1"}
		w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	}
	l := newLife("opened", metrics.Replica{Elected: elected()})
	l.change(0, gated)
	l.change(1000, func(w *kueue.Workload) { delete(w.Annotations, apis.AdmissionGatedByAnnotation) })
	l.set(7, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
	l.wantSome(t, "opened", "tranche_stage_wait", "tranche_stage_wait_seconds later 1 in 7s")

	l = newLife("unknown", metrics.Replica{Elected: elected()})
	gated(l.workload)
	delete(l.workload.Annotations, apis.AdmissionGatedByAnnotation)
	l.set(7, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
	l.wantSome(t, "unknown", "tranche_stage_wait")
}

func TestChangesThatAreNotRecorded(t *testing.T) {
	t.Run("what a new manager finds", func(t *testing.T) {
		l := newLife("found", metrics.Replica{Elected: elected()})
		l.set(1, "QuotaReserved=True QuotaReserved")
		before := recorded(t, l.metrics, "found")
		again := metrics.NewRecorder(l, l.metrics, time.Now)
		again.Changed(l.workload, l.workload)
		l.workload.ResourceVersion = ""
		again.Changed(l.workload, l.workload)
		l.want(t, "found", before...)
	})
	t.Run("what a follower sees", func(t *testing.T) {
		l := newLife("follower", metrics.Replica{Elected: make(chan struct{}), LeaderElection: true})
		l.set(1, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
		l.set(1, "Finished=True Succeeded")
		l.want(t, "follower")
	})
	t.Run("what happens on queues that have gone", func(t *testing.T) {
		l := newLife("gone", metrics.Replica{Elected: elected()})
		l.set(1, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
		l.metrics.Preempted("gone", "InClusterQueue")
		l.metrics.Admitted("gone")
		l.metrics.DeadlockResolved("gone")
		delete(l.queues, "gone")
		l.recorder.ClusterQueueGone("gone")
		l.recorder.LocalQueueGone(types.NamespacedName{Namespace: "ns", Name: "gone"})
		l.set(1, "Finished=True Succeeded")
		l.want(t, "gone")
	})
}

func TestDeletedWhileItHeldQuota(t *testing.T) {
	l := newLife("ended", metrics.Replica{Elected: elected()})
	l.set(1, "QuotaReserved=True QuotaReserved")
	l.clock = l.clock.Add(30 * time.Second)
	l.recorder.Gone(l.workload)
	l.wantSome(t, "ended", "hold", "tranche_stage_hold_seconds deleted 1 in 30s")
}

func TestDecisions(t *testing.T) {
	for name, tc := range map[string]struct {
		decisions  []admission.Decision
		wantResult string
	}{
		"nothing": {nil, ""},
		"success": {[]admission.Decision{admission.Refuse{}, admission.Admit{}, admission.Refuse{}}, "success"},
		"refused": {[]admission.Decision{admission.Refuse{}, admission.Evict{}}, "inadmissible"},
		"evicted": {[]admission.Decision{admission.Evict{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New(metrics.Replica{})
			m.Decided(tc.decisions, time.Second)
			got := attempts(t, m)
			for _, result := range []string{"success", "inadmissible"} {
				if want := map[bool]float64{true: 1}[result == tc.wantResult]; got[result] != want {
					t.Errorf("%s: %g attempts, want %g", result, got[result], want)
				}
			}
		})
	}
}

func attempts(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, result := range []string{"success", "inadmissible"} {
		for _, line := range recorded(t, m, result) {
			if rest, ok := strings.CutPrefix(line, "kueue_admission_attempts_total "); ok {
				var n float64
				if _, err := fmt.Sscan(rest, &n); err != nil {
					t.Fatal(err)
				}
				counts[result] = n
			}
		}
	}
	return counts
}

func TestIdleQuota(t *testing.T) {
	charge := func(w *kueue.Workload) {
		w.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot", "nvidia.com/gpu": "a100", "none": "a100"},
			ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "nvidia.com/gpu": resource.MustParse("2"), "none": resource.MustParse("0")},
		}}
	}
	for name, c := range map[string]struct {
		then []string
		want []string
	}{
		"until it is ready": {
			[]string{"PodsReady=True Started", "PodsReady=False WaitForRecovery", "PodsReady=True Recovered", "Finished=True Succeeded"},
			[]string{"NotReady a100 nvidia.com/gpu 20", "NotReady spot cpu 15"},
		},
		"ready only at its end": {[]string{"PodsReady=True Started Finished=True Succeeded"}, []string{"NotReady a100 nvidia.com/gpu 20", "NotReady spot cpu 15"}},
		"never ready":           {[]string{"Finished=True Failed"}, []string{"NotReady a100 nvidia.com/gpu 20", "NotReady spot cpu 15"}},
		"given back": {
			[]string{"Evicted=True PodsReadyTimeout", "QuotaReserved=False Pending"}, []string{"NotReady a100 nvidia.com/gpu 40", "NotReady spot cpu 30"},
		},
		"given back when it had been ready": {
			[]string{"PodsReady=True Started", "Evicted=True Preempted", "PodsReady=False WaitForStart", "QuotaReserved=False Pending"},
			[]string{"NotReady a100 nvidia.com/gpu 20", "NotReady spot cpu 15"},
		},
		"restarted with its quota": {
			[]string{"PodsReady=True Started", "PodsReady=True Started", "PodsReady= closed", "PodsReady=False WaitForStart", "PodsReady=True Started"},
			[]string{"NotReady a100 nvidia.com/gpu 60", "NotReady spot cpu 45"},
		},
		"restarted, and never ready again": {
			[]string{"PodsReady=True Started", "PodsReady=True Started", "PodsReady= closed", "PodsReady=False WaitForStart", "Finished=True Failed"},
			[]string{"NotReady a100 nvidia.com/gpu 60", "NotReady spot cpu 45"},
		},
		"restarted before this manager was": {
			[]string{"PodsReady=True Started", "PodsReady= closed", "PodsReady=False WaitForStart", "another manager", "PodsReady=True Started"},
			[]string{"NotReady a100 nvidia.com/gpu 60", "NotReady spot cpu 45"},
		},
		"deleted": {[]string{"gone"}, []string{"NotReady a100 nvidia.com/gpu 20", "NotReady spot cpu 15"}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := "idle " + name
			l := newLife(queue, metrics.Replica{Elected: elected()})
			l.set(5, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
			charge(l.workload)
			for _, step := range c.then {
				switch step {
				case "gone":
					l.clock = l.clock.Add(10 * time.Second)
					l.recorder.Gone(l.workload)
					continue
				case "PodsReady= closed":
					l.clock = l.clock.Add(10 * time.Second)
					l.note(jobsetstatus.Hold{Closes: true})
					l.change(0, func(w *kueue.Workload) { apimeta.RemoveStatusCondition(&w.Status.Conditions, kueue.WorkloadPodsReady) })
					continue
				case "another manager":
					l.restart()
					continue
				}
				first, second, both := strings.Cut(step, " Finished")
				steps := []string{first}
				if both {
					steps = append(steps, "Finished"+second)
				}
				admission := l.workload.Status.Admission
				l.set(10, steps...)
				if step != "QuotaReserved=False Pending" {
					l.workload.Status.Admission = admission
				}
			}
			for i := range c.want {
				c.want[i] = "tranche_idle_quota_seconds_total " + c.want[i]
			}
			l.wantSome(t, queue, "tranche_idle", c.want...)
		})
	}
	t.Run("waited for another stage", func(t *testing.T) {
		l := newLife("waited", metrics.Replica{Elected: elected()})
		l.set(5, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted")
		charge(l.workload)
		l.metrics.WaitedForStage(l.workload, 7*time.Second)
		l.metrics.WaitedForStage(l.workload, 0)
		l.wantSome(t, "waited", "tranche_idle", "tranche_idle_quota_seconds_total WaitsForStage a100 nvidia.com/gpu 14",
			"tranche_idle_quota_seconds_total WaitsForStage spot cpu 10.5")
	})
}

// TestDurationsOfOtherControllers covers the histograms that the controllers of JobSets and of gangs record.
func TestDurationsOfOtherControllers(t *testing.T) {
	l := newLife("timed", metrics.Replica{Elected: elected()})
	job := &kueue.Workload{} // an object with a time and a generation
	job.CreationTimestamp, job.Generation = metav1.NewTime(l.clock), 1
	l.metrics.WorkloadsCreated("Job", job, l.clock.Add(2*time.Second))
	job.Generation = 2
	l.metrics.WorkloadsCreated("Job", job, l.clock.Add(time.Hour))

	gang := &kueue.Workload{}
	l.metrics.Ungated(gang, l.clock)
	gang.Status.Admission = &kueue.Admission{ClusterQueue: "timed"}
	gang.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(l.clock)}}
	l.metrics.Ungated(gang, l.clock.Add(3*time.Second))

	registry := prometheus.NewRegistry()
	for _, c := range l.metrics.Collectors() {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		if name := family.GetName(); name == "kueue_workload_creation_latency_seconds" || name == "kueue_pod_scheduling_gate_removal_seconds" {
			sample := family.GetMetric()[0]
			var labels []string
			for _, pair := range sample.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			got[name] = fmt.Sprintf("%s: %d in %gs", strings.Join(labels, " "), sample.GetHistogram().GetSampleCount(), sample.GetHistogram().GetSampleSum())
		}
	}
	want := map[string]string{
		"kueue_workload_creation_latency_seconds":   "job_kind=Job replica_role=standalone: 1 in 2s",
		"kueue_pod_scheduling_gate_removal_seconds": "cluster_queue=timed is_group=true name=kueue.x-k8s.io/admission replica_role=standalone: 1 in 3s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("histograms (-want +got):\n%s", diff)
	}
}
