package takeover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// A lock is the ConfigMap that names the ClusterQueues in which Kueue may not admit. The policies read it: its name and keys are in their expressions.
type lock struct {
	client client.Client
	live   client.Reader
}

const (
	queuePrefix  = "queue."
	cohortPrefix = "cohort."
)

// read returns the ConfigMap, which may not exist yet.
func (l *lock) read(ctx context.Context) (*corev1.ConfigMap, error) {
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.TakeoverConfigMap}}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(held), held); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", apis.TakeoverConfigMap, err)
	}
	return held, nil
}

// users returns the names of both managers, as the policies know them.
func (l *lock) users(ctx context.Context) (map[string]string, error) {
	var guards corev1.ConfigMap
	if err := l.live.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}, &guards); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", apis.GuardsConfigMap, err)
	}
	return map[string]string{"manager": guards.Data["manager"], "kueueManager": guards.Data["kueueManager"]}, nil
}

// write writes the data of the ConfigMap, unless it has them or another client has written it since it was read.
func (l *lock) write(ctx context.Context, held *corev1.ConfigMap, data map[string]string) error {
	if maps.Equal(held.Data, data) && held.ResourceVersion != "" {
		return nil
	}
	held.Data = data
	write := func() error { return l.client.Update(ctx, held) }
	if held.ResourceVersion == "" {
		write = func() error { return l.client.Create(ctx, held) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", apis.TakeoverConfigMap, err)
	}
	return nil
}

// locked returns the ClusterQueues that the ConfigMap names, in order.
func locked(held *corev1.ConfigMap) []string {
	var names []string
	for key := range held.Data {
		if name, isQueue := strings.CutPrefix(key, queuePrefix); isQueue {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isInForce reports whether the API server sees that a ClusterQueue is locked: it observes the ConfigMap a while after it was written.
func (l *lock) isInForce(ctx context.Context, clusterQueue string) (bool, error) {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: apis.SystemNamespace, Name: apis.TakeoverConfigMap + "-probe", Labels: map[string]string{apis.TakeoverProbeLabel: "true"},
	}, Data: map[string]string{"clusterQueue": clusterQueue}}
	return answerOf(l.client.Create(ctx, probe, client.DryRunAll))
}

// answerOf returns whether the API server has rejected a probe because of the lock. A probe that is rejected for any other reason has no answer.
func answerOf(err error) (bool, error) {
	if (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), "the ClusterQueue is locked") {
		return true, nil
	}
	if apierrors.IsForbidden(err) {
		return false, fmt.Errorf("probe the policies of a takeover by a dry run: %w; let the manager create ConfigMaps in namespace %s, as config/rbac does, and let no other policy reject this", err, apis.SystemNamespace)
	}
	if err != nil {
		return false, fmt.Errorf("probe the policies of a takeover by a dry run: %w", err)
	}
	return false, nil
}
