package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A server is an API server of some quota Workloads. It answers writes of their status with the errors in refusals, and accepts them when there are none.
type server struct {
	client.Client
	workloads map[client.ObjectKey]*kueue.Workload
	refusals  []error
	writes    int
}

func (s *server) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	stored := s.workloads[key]
	if stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "workloads"}, key.Name)
	}
	stored.DeepCopyInto(object.(*kueue.Workload))
	return nil
}

func (s *server) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return kueue.SchemeGroupVersion.WithKind("Workload"), nil
}

func (s *server) Status() client.SubResourceWriter { return statusOf{server: s} }

type statusOf struct {
	client.SubResourceWriter
	server *server
}

// Apply replaces the status of a quota Workload: these tests have one field manager.
func (s statusOf) Apply(_ context.Context, sent runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	s.server.writes++
	if refusals := s.server.refusals; len(refusals) > 0 {
		s.server.refusals = refusals[1:]
		return refusals[0]
	}
	object := sent.(interface {
		UnstructuredContent() map[string]any
		SetUnstructuredContent(content map[string]any)
	})
	var written kueue.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.UnstructuredContent(), &written); err != nil {
		return err
	}
	stored := s.server.workloads[client.ObjectKeyFromObject(&written)].DeepCopy()
	stored.Status, stored.ResourceVersion = written.Status, stored.ResourceVersion+"1"
	s.server.workloads[client.ObjectKeyFromObject(&written)] = stored
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	object.SetUnstructuredContent(content)
	return err
}

// noticed returns a writer whose engine gives the running quota Workload n/w notice, the runner that feeds the engine, and the API server.
func noticed(t *testing.T) (*writer, *server, admission.Notice) {
	t.Helper()
	engine, err := admission.New(admission.Config{PreemptionNotice: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	victim, urgent := contenders(engine)
	admit := engine.Decide(time.Now())[0].(admission.Admit)
	victim.Status = workloadstatus.Admitted(victim, &admit.Admission, time.Now())
	victim.ResourceVersion += "1"
	engine.Apply(admission.WorkloadObserved{Workload: victim})
	engine.Settle(admit.ID)
	engine.Apply(admission.WorkloadObserved{Workload: urgent})
	s := &server{workloads: map[client.ObjectKey]*kueue.Workload{}}
	for _, w := range []*kueue.Workload{victim, urgent} {
		s.workloads[client.ObjectKeyFromObject(w)] = w
	}
	config := Config{
		Engine: engine, Client: s, Reader: s, Recorder: k8sevents.NewFakeRecorder(10), Metrics: metrics.New(metrics.Replica{}),
	}
	r := &Runner{config: config, wake: make(chan struct{}, 1)}
	r.writer = newWriter(config, r)
	t.Cleanup(r.writer.queue.ShutDown)
	return r.writer, s, nextNotice(t, engine)
}

// nextNotice returns the notice that the engine decides now.
func nextNotice(t *testing.T, engine *admission.Engine) admission.Notice {
	t.Helper()
	decisions := engine.Decide(time.Now())
	for _, d := range decisions {
		if notice, isNotice := d.(admission.Notice); isNotice {
			return notice
		}
	}
	t.Fatalf("decided %v, want a notice", decisions)
	return admission.Notice{}
}

func wantMetrics(t *testing.T, w *writer, want string, names ...string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.config.Metrics.Collectors()...)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// A notice that the API server refuses, or that meets a conflict, is settled with the object as it is, and decided again. Only the one that is written counts.
func TestNoticeThatIsNotWritten(t *testing.T) {
	workloads := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}
	for name, refusal := range map[string]error{
		"refused":     apierrors.NewForbidden(workloads, "w", errors.New("a policy denies it")),
		"a conflict":  apierrors.NewConflict(workloads, "w", errors.New("it has changed")),
		"unavailable": apierrors.NewServiceUnavailable("no leader"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, d := noticed(t)
				s.refusals = []error{refusal}
				w.notify(t.Context(), &d)
				if !w.config.Engine.InFlight(d.ID) {
					t.Error("the decision is settled before the API server was asked what is true")
				}
				<-w.runner.wake // the object was read
				w.runner.drain()
				if w.config.Engine.InFlight(d.ID) {
					t.Error("the decision is not settled")
				}
				again := nextNotice(t, w.config.Engine)
				w.notify(t.Context(), &again)
				w.runner.drain()
				victim := s.workloads[d.Stage]
				if notice := quotaworkload.NoticeOf(victim); notice == nil || notice.Preemptor != "urgent" || w.config.Engine.InFlight(again.ID) || s.writes != 2 {
					t.Errorf("after %d writes the notice is %+v of %v", s.writes, notice, victim.Status.Conditions)
				}
				wantMetrics(t, w, `
					# HELP tranche_decision_write_failures_total Number of decisions whose write failed, by kind of decision. The engine decides again, or the write is retried.
					# TYPE tranche_decision_write_failures_total counter
					tranche_decision_write_failures_total{decision="Notice"} 1
					# HELP tranche_preemption_notices_total Number of stages that were given notice of their preemption, by ClusterQueue of the stage. Action is Given or Withdrawn.
					# TYPE tranche_preemption_notices_total counter
					tranche_preemption_notices_total{action="Given",cluster_queue="q"} 1
				`, "tranche_decision_write_failures_total", "tranche_preemption_notices_total")
			})
		})
	}
}

// A notice is withdrawn when the preemptor no longer waits, and both are counted.
func TestNoticeThatIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, d := noticed(t)
		w.notify(t.Context(), &d)
		w.runner.drain()
		w.config.Engine.Apply(admission.WorkloadGone{Key: admission.StageKey{Namespace: "n", Name: "urgent"}})
		withdrawal := nextNotice(t, w.config.Engine)
		w.notify(t.Context(), &withdrawal)
		w.runner.drain()
		if notice := quotaworkload.NoticeOf(s.workloads[d.Stage]); notice != nil {
			t.Errorf("the notice is %+v, want none", notice)
		}
		wantMetrics(t, w, `
			# HELP tranche_preemption_notices_total Number of stages that were given notice of their preemption, by ClusterQueue of the stage. Action is Given or Withdrawn.
			# TYPE tranche_preemption_notices_total counter
			tranche_preemption_notices_total{action="Given",cluster_queue="q"} 1
			tranche_preemption_notices_total{action="Withdrawn",cluster_queue="q"} 1
		`, "tranche_preemption_notices_total")
	})
}
