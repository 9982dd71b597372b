package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/controllers/takeover"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// A state is what the cluster says about the ClusterQueues that the user names.
type state struct {
	client client.Client
	// names are the ClusterQueues, in order and each once, and queues the objects of all ClusterQueues.
	names  []string
	queues map[string]*kueue.ClusterQueue
	// obstacles are all reasons against a takeover but those that the takeover itself removes. missing are other ClusterQueues of the same trees.
	obstacles, missing []string
	// locks has the ClusterQueues that the lock names, with their state.
	locks map[string]string
	// unsupported are the Workloads of the ClusterQueues that Tranche does not admit. They are read for a takeover only.
	unsupported []Unsupported
	// isBeside is true if Tranche is installed beside Kueue, and kueueVersion is that of its manager, if it is known.
	isBeside     bool
	kueueVersion string
}

func read(ctx context.Context, c client.Client, names []string) (*state, error) {
	s := &state{client: c, names: slices.Compact(slices.Sorted(slices.Values(names))), queues: map[string]*kueue.ClusterQueue{}}
	var queues kueue.ClusterQueueList
	var cohorts kueue.CohortList
	var flavors kueue.ResourceFlavorList
	var checks kueue.AdmissionCheckList
	for _, of := range []struct {
		kind string
		list client.ObjectList
	}{{"ClusterQueues", &queues}, {"Cohorts", &cohorts}, {"ResourceFlavors", &flavors}, {"AdmissionChecks", &checks}} {
		if err := c.List(ctx, of.list); err != nil {
			return nil, unreadable(of.kind, err)
		}
	}
	for i := range queues.Items {
		s.queues[queues.Items[i].Name] = &queues.Items[i]
	}
	for _, name := range s.names {
		if s.queues[name] == nil {
			return nil, exitcode.AsBadInput(fmt.Errorf("there is no ClusterQueue %s: correct the name, or name another cluster with --kubeconfig", name))
		}
	}
	engine, err := admission.New(admission.Config{Leader: admission.LedByKueue})
	if err != nil {
		return nil, err
	}
	for i := range flavors.Items {
		engine.Apply(admission.FlavorObserved{Flavor: &flavors.Items[i]})
	}
	for i := range checks.Items {
		engine.Apply(admission.CheckObserved{AdmissionCheck: &checks.Items[i]})
	}
	for i := range cohorts.Items {
		engine.Apply(admission.CohortObserved{Cohort: &cohorts.Items[i]})
	}
	for name, q := range s.queues {
		if slices.Contains(s.names, name) {
			q = asking(q)
		}
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
	}
	s.judge(engine)
	return s, s.readManagers(ctx)
}

// unreadable returns why objects of a kind cannot be read, and what to do.
func unreadable(kind string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("list %s: %w; ask for the right to list them, for example by a ClusterRoleBinding to the ClusterRole %s", kind, err, collect.ReaderRole)
	case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("list %s: %w; install Kueue, or name another cluster with --kubeconfig", kind, err)
	}
	return fmt.Errorf("list %s: %w", kind, err)
}

// asking returns a ClusterQueue as a takeover changes it.
func asking(q *kueue.ClusterQueue) *kueue.ClusterQueue {
	q = q.DeepCopy()
	if q.Annotations == nil {
		q.Annotations = map[string]string{}
	}
	q.Annotations[apis.EngineAnnotation] = apis.EngineTranche
	q.Spec.StopPolicy = new(kueue.Hold)
	return q
}

// judge finds the obstacles in the trees of the ClusterQueues.
func (s *state) judge(engine *admission.Engine) {
	for _, name := range s.names {
		tree := engine.TakeoverOf(name)
		for _, obstacle := range tree.Obstacles[name] {
			s.obstacles = append(s.obstacles, fmt.Sprintf("ClusterQueue %s: %s", name, obstacle))
		}
		for _, other := range tree.ClusterQueues {
			if !slices.Contains(s.names, other) && !slices.Contains(s.missing, other) {
				s.missing = append(s.missing, other)
			}
		}
	}
}

// readManagers reads how Tranche and Kueue are installed.
func (s *state) readManagers(ctx context.Context) error {
	var guards, lock corev1.ConfigMap
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}, &guards); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", apis.GuardsConfigMap, err)
	}
	if err := s.readLock(ctx, &lock); err != nil {
		return err
	}
	kueueManager := guards.Data["kueueManager"]
	s.isBeside = kueueManager != ""
	var err error
	s.kueueVersion, err = takeover.KueueVersion(ctx, s.client, kueueManager)
	return err
}

func (s *state) readLock(ctx context.Context, lock *corev1.ConfigMap) error {
	err := s.client.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.TakeoverConfigMap}, lock)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", apis.TakeoverConfigMap, err)
	}
	s.locks = map[string]string{}
	for key, value := range lock.Data {
		if name, isQueue := strings.CutPrefix(key, "queue."); isQueue {
			s.locks[name] = value
		}
	}
	return nil
}

// wasHeld reports whether an administrator holds a ClusterQueue for the engine that admits in it.
func wasHeld(q *kueue.ClusterQueue) bool {
	if q.Annotations[apis.EngineAnnotation] == apis.EngineTranche {
		policy := q.Annotations[apis.StopPolicyAnnotation]
		return policy != "" && policy != string(kueue.None)
	}
	return ptr.Deref(q.Spec.StopPolicy, kueue.None) != kueue.None
}
