package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// heldJob is the Job of a stage of the JobSet js.
func heldJob(stage string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: named("js-" + stage)}
	job.Labels = map[string]string{jobset.JobSetNameKey: "js", jobset.ReplicatedJobNameKey: stage}
	job.Spec.Suspend = new(true)
	return job
}

func released(job *batchv1.Job) *batchv1.Job {
	job.Spec.Suspend = new(false)
	return job
}

func completed(job *batchv1.Job) *batchv1.Job {
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	return released(job)
}

// openWorkload is the quota Workload of a stage.
func openWorkload(stage string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: named("jobset-js-" + stage)}
	w.Labels = map[string]string{apis.JobSetLabel: "js", apis.StageLabel: stage}
	return w
}

func gated(w *kueue.Workload) *kueue.Workload {
	w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	return w
}

func admitted(w *kueue.Workload) *kueue.Workload {
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
	return w
}

// Each part of a handover counts from when the Job before is complete, and when it is observed for the first time.
func TestHandover(t *testing.T) {
	f := newFollower(1)
	pod := &corev1.Pod{ObjectMeta: named("js-r1-0")}
	pod.Labels = map[string]string{jobset.JobSetNameKey: "js", jobset.ReplicatedJobNameKey: "r1"}
	for i, object := range []client.Object{
		released(heldJob("r0")), gated(openWorkload("r1")), completed(heldJob("r0")), openWorkload("r1"), heldJob("r1"), admitted(openWorkload("r1")),
		released(heldJob("r1")), pod, completed(heldJob("r0")), completed(heldJob("r1")), pod,
	} {
		f.see(watch.Event{Type: watch.Modified, Object: object}, f.began.Add(time.Duration(i+1)*time.Second))
	}
	var h handoverRun
	if err := h.measure(f); err != nil || h.handovers != 1 {
		t.Errorf("%d handovers, %v", h.handovers, err)
	}
	want := map[string][]time.Duration{
		"stage-open": {time.Second}, "job-created": {2 * time.Second}, "admitted": {3 * time.Second}, "released": {4 * time.Second}, "pod": {5 * time.Second},
	}
	if diff := cmp.Diff(want, h.parts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	js := &jobsetapi.JobSet{ObjectMeta: named("js")}
	js.Status.TerminalState = string(jobset.JobSetFailed)
	f.see(watch.Event{Type: watch.Modified, Object: js}, f.began)
	if h.measure(f) == nil {
		t.Error("a JobSet has failed without an error")
	}
}

func TestHandoverFigures(t *testing.T) {
	ms := time.Millisecond
	queued := &handoverRun{
		name: "queued", handovers: 2, parts: map[string][]time.Duration{"stage-open": {5 * ms, 7 * ms}, "released": {30 * ms, 90 * ms}},
		requests: counts{"tranche/jobs/patch": 4, "tranche/workloads/patch": 8},
	}
	stock := &handoverRun{name: "stock", handovers: 2, parts: map[string][]time.Duration{"released": {10 * ms, 30 * ms}}}
	got := map[string]float64{}
	for _, f := range handoverFigures(queued, stock, 1) {
		if f.value != 0 {
			got[f.name] = f.value
		}
	}
	want := map[string]float64{
		"queued/stage-open/p50": 5, "queued/stage-open/p99": 7,
		"queued/released/p50": 30, "stock/released/p50": 10, "ratio/released/p50": 3,
		"queued/released/p99": 90, "stock/released/p99": 30, "ratio/released/p99": 3,
		"unfinished":              2,
		"queued/requests/tranche": 3, "queued/requests/tranche/jobs/patch": 1, "queued/requests/tranche/workloads/patch": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What was counted in a part of the ten minutes is as much more in all of them.
func TestHeldFigures(t *testing.T) {
	requests := counts{"jobset/jobs/update": 2000, "jobset/jobs/status/update": 7, "tranche/jobs/update": 7}
	got := map[string]float64{}
	for _, f := range heldFigures(requests, 5*time.Minute, 30*time.Second) {
		got[f.name] = f.value
	}
	if got["resumes"] != 4 || got["apiserver/cpu"] != 60 || got["all/requests/jobset"] != 200.7 {
		t.Errorf("%v, want 4 resumes, 60 s and 200.7 requests", got)
	}
}

// Only what was received since the time counts, by writer, resource and verb.
func TestCountRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := `{"verb":"patch","user":{"username":"system:serviceaccount:kube-system:job-controller"},"objectRef":{"resource":"jobs","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T10:00:00.000000Z"}
{"verb":"patch","user":{"username":"system:serviceaccount:kube-system:job-controller"},"objectRef":{"resource":"jobs","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T10:00:00.500000Z"}
{"verb":"create","user":{"username":"system:serviceaccount:kube-system:job-controller"},"objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:01.000000Z"}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := countRequests(path, time.Date(2026, 1, 1, 10, 0, 0, 500_000_000, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want := counts{"job/jobs/status/patch": 1, "job/pods/create": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
