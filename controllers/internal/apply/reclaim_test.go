package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A workloadClient patches quota Workloads, and writes their status.
type workloadClient struct {
	client.Client
	status workloadStatus
}

func (c *workloadClient) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return kueue.SchemeGroupVersion.WithKind("Workload"), nil
}

// Patch answers with a later version of the quota Workload, of which another client has removed the reclaimable pods.
func (c *workloadClient) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	answer := c.status.stored.DeepCopy()
	answer.ResourceVersion, answer.Status.ReclaimablePods = "3", nil
	data, err := json.Marshal(answer)
	return errors.Join(err, json.Unmarshal(data, object))
}

func (c *workloadClient) Status() client.SubResourceWriter { return c.status }

// A workloadStatus answers each server-side apply of a status with a later version of the quota Workload, as the API server does.
type workloadStatus struct {
	client.SubResourceWriter
	stored *kueue.Workload
}

func (s workloadStatus) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	object, ok := config.(interface {
		UnstructuredContent() map[string]any
		SetUnstructuredContent(content map[string]any)
	})
	if !ok {
		return errors.ErrUnsupported
	}
	var applied kueue.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.UnstructuredContent(), &applied); err != nil {
		return err
	}
	answer := s.stored.DeepCopy()
	answer.ResourceVersion, answer.Status.ReclaimablePods = "3", applied.Status.ReclaimablePods
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(answer)
	object.SetUnstructuredContent(content)
	return err
}

// TestReclaimIsObservedAtOnce: the engine knows the reclaimable pods before any watch reports them. The cache still has the version without them,
// and no Job may be released on that.
func TestReclaimIsObservedAtOnce(t *testing.T) {
	workload := admitted()
	writer := newWriter(t, workload)
	isCharged := func() bool {
		t.Helper()
		charged, err := apply.Charged(t.Context(), writer.Runner, []*kueue.Workload{workload})
		if err != nil {
			t.Fatal(err)
		}
		return charged[workload.UID]
	}
	if !isCharged() {
		t.Fatal("the engine does not charge the admitted quota Workload")
	}
	var reclaim quotastep.Step
	reclaim.Reclaim(workload, []kueue.ReclaimablePod{{Name: "main", Count: 1}})
	if err := writer.Write(t.Context(), reclaim.Writes, apply.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if isCharged() {
		t.Error("the engine charges the quota Workload for a pod whose quota has just been reclaimed")
	}
}

// TestAdmissionIsObservedAtOnce: a reconcile may see an admission before the engine does. It need not wait for the engine then.
func TestAdmissionIsObservedAtOnce(t *testing.T) {
	held := admitted()
	waiting := held.DeepCopy()
	waiting.ResourceVersion, waiting.Status = "1", kueue.WorkloadStatus{}
	writer := newWriter(t, waiting)
	charged, err := apply.Charged(t.Context(), writer.Runner, []*kueue.Workload{held})
	if err != nil {
		t.Fatal(err)
	}
	if !charged[held.UID] {
		t.Error("the engine does not charge the quota Workload that holds quota")
	}
}

// TestChangeIsObservedAtOnce: a stage that is opened is decided about before any watch reports that, so that a reconcile can ask whether it is admitted.
func TestChangeIsObservedAtOnce(t *testing.T) {
	before := admitted()
	before.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	writer := newWriter(t, before)
	after := before.DeepCopy()
	after.Annotations = map[string]string{"a": "b"}
	if err := writer.Change(t.Context(), before, after); err != nil {
		t.Fatal(err)
	}
	err := writer.Runner.View(t.Context(), func(e *admission.Engine) {
		if all := e.ChargeSnapshot().Stages; len(all) != 1 || all[0].ResourceVersion != 3 {
			t.Errorf("the engine knows %+v, want version 3 of the quota Workload", all)
		}
		if !e.ChargedAs(admitted()) {
			t.Error("the engine does not charge the pods that are no longer reclaimable")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// admitted returns a quota Workload of two pods that holds quota.
func admitted() *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w", UID: "w", ResourceVersion: "2", Generation: 1}}
	w.Spec.QueueName = "l"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
	}}}}}}
	w.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(2)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("2")},
	}}}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	return w
}

// newWriter returns a Writer whose engine has observed a quota Workload. The engine decides nothing, since this process does not lead.
func newWriter(t *testing.T, workload *kueue.Workload) *apply.Writer {
	t.Helper()
	decides, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := &workloadClient{status: workloadStatus{stored: workload}}
	recorder := k8sevents.NewFakeRecorder(10)
	runner, err := engine.NewRunner(engine.Config{
		Engine: decides, Client: server, Reader: server, Recorder: recorder, Metrics: metrics.New(metrics.Replica{}), Elected: make(chan struct{}), Writers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	runner.Observe(admission.WorkloadObserved{Workload: workload})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = runner.Start(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return &apply.Writer{Client: server, Runner: runner, Recorder: recorder, Parallel: 1}
}
