package jobset

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// A oneJobSet is a cluster with a single JobSet.
type oneJobSet struct {
	client.Client
	jobSet    *jobsetapi.JobSet
	workloads []kueue.Workload
	reads     int
}

func (c *oneJobSet) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.reads++
	if js, ok := object.(*jobsetapi.JobSet); ok {
		c.jobSet.DeepCopyInto(js)
	}
	return nil
}

func (c *oneJobSet) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch all := list.(type) {
	case *jobsetapi.JobSetList:
		all.Items = []jobsetapi.JobSet{*c.jobSet.DeepCopy()}
	case *kueue.WorkloadList:
		all.Items = c.workloads
	}
	return nil
}

// startRunner runs an engine until the test ends.
func startRunner(t *testing.T, cluster *oneJobSet, config admission.Config) *engine.Runner {
	t.Helper()
	e, err := admission.New(config)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := engine.NewRunner(engine.Config{
		Engine: e, Client: cluster, Reader: cluster, Recorder: k8sevents.NewFakeRecorder(1), Metrics: metrics.New(metrics.Replica{}), Elected: make(chan struct{}), Writers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	go runner.Start(t.Context()) //nolint:errcheck // it ends with the test
	return runner
}

// The engine also knows the pending JobSets where the process does not lead, because the visibility API is answered there, too.
func TestPlansAreKnownToFollowers(t *testing.T) {
	s := newSnapshot(t)
	workloads := stages.Next(s).Workloads(quotastep.Create)
	cluster := &oneJobSet{jobSet: s.JobSet}
	runner := startRunner(t, cluster, admission.Config{})
	runner.Observe(admission.NamespaceObserved{Name: "ns"})
	runner.Observe(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a100"}}})
	runner.Observe(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "cq"},
		Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{
				Name: "a100", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("8")}},
			}},
		}}},
	}})
	runner.Observe(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ml"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"},
	}})
	for _, w := range workloads {
		w.UID = types.UID(w.Name)
		runner.Observe(admission.WorkloadObserved{Workload: w})
	}
	isPending := func() (isPending bool) {
		t.Helper()
		err := runner.View(t.Context(), func(e *admission.Engine) {
			_, isPending = e.PendingStage(client.ObjectKeyFromObject(workloads[0]))
		})
		if err != nil {
			t.Fatal(err)
		}
		return isPending
	}
	if isPending() {
		t.Fatal("the stage is in line before its plan is known")
	}
	feed := &planPublisher{reconciler: &Reconciler{config: Config{Runner: runner, Client: cluster}}}
	request := ctrl.Request{NamespacedName: s.Key}
	if _, err := feed.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if !isPending() {
		t.Error("the stage is not in line")
	}
	// From then on the stage controller sends the plans.
	if err := feed.publishAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := cluster.reads
	if _, err := feed.Reconcile(t.Context(), request); err != nil || cluster.reads != before {
		t.Errorf("%d reads after the first decision, %v", cluster.reads-before, err)
	}
}

// TestPublishedPlan publishes the plan for which the quota Workloads of a JobSet were made, before anything may be asked: a JobSet that was admitted as
// a whole must not be judged by the plan of its stages after a restart.
func TestPublishedPlan(t *testing.T) {
	s := newHolder(t)
	whole, err := stageplan.Whole(s.Plan)
	if err != nil {
		t.Fatal(err)
	}
	together := *s
	together.Plan = whole
	for name, tt := range map[string]struct {
		workloads []*kueue.Workload
		stages    int
	}{
		"new":      {nil, 2},
		"staged":   {stages.Next(s).Workloads(quotastep.Create), 2},
		"together": {stages.Next(&together).Workloads(quotastep.Create), 1},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &oneJobSet{jobSet: s.JobSet}
			for _, w := range tt.workloads {
				cluster.workloads = append(cluster.workloads, *w)
			}
			runner := startRunner(t, cluster, admission.Config{Leader: admission.LedByKueue})
			feed := &planPublisher{reconciler: &Reconciler{config: Config{Runner: runner, Client: cluster, Safety: fixedSafety{}}}}
			if err := feed.publishAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			known := 0
			err := runner.View(t.Context(), func(e *admission.Engine) {
				for stage := range 3 {
					if answer := e.MayOpen(admission.OpenRequest{JobSet: s.JobSet.UID, Stage: stage}); !strings.Contains(answer.Message, "does not know the plan") {
						known++
					}
				}
			})
			if err != nil || known != tt.stages {
				t.Errorf("the engine knows %d stages, want %d; %v", known, tt.stages, err)
			}
		})
	}
}
