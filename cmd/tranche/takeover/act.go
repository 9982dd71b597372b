package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

var (
	takeOver = verb{planTakeover, actTakeover}
	handBack = verb{planHandBack, actHandBack}
)

// A change is the merge patch of a ClusterQueue.
type change struct {
	Metadata struct {
		UID         types.UID          `json:"uid"`
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		StopPolicy kueue.StopPolicy `json:"stopPolicy,omitempty"`
	} `json:"spec"`
}

func (s *state) patch(ctx context.Context, name string, c *change) error {
	c.Metadata.UID = s.queues[name].UID
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Patch(ctx, q, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("change ClusterQueue %s: %w", name, err)
	}
	return nil
}

func actTakeover(ctx context.Context, out io.Writer, s *state) error {
	for _, name := range s.names {
		c := &change{}
		c.Metadata.Annotations = map[string]*string{apis.EngineAnnotation: new(apis.EngineTranche)}
		if wasHeld(s.queues[name]) {
			c.Metadata.Annotations[apis.StopPolicyAnnotation] = new(string(kueue.Hold))
		}
		c.Spec.StopPolicy = kueue.Hold
		if err := s.patch(ctx, name, c); err != nil {
			return err
		}
	}
	err := s.await(ctx, func(state string) bool { return state == "Tranche" })
	if err != nil {
		return fmt.Errorf("%w: do the managers of Kueue and Tranche run? The ClusterQueues stay held: look at their Events, or run tranche hand-back %s",
			err, strings.Join(s.names, " "))
	}
	_, err = fmt.Fprintln(out, "Tranche admits.")
	return err
}

func actHandBack(ctx context.Context, out io.Writer, s *state) error {
	names := s.toHandBack()
	for _, name := range names {
		// The other annotation stays until the end, so that the command can be repeated.
		c := &change{}
		c.Metadata.Annotations = map[string]*string{apis.EngineAnnotation: new(apis.EngineKueue)}
		if err := s.patch(ctx, name, c); err != nil {
			return err
		}
	}
	if err := s.await(ctx, func(state string) bool { return state == "" }); err != nil {
		return fmt.Errorf("%w: does Tranche's manager run? The ClusterQueues stay held: run the command again", err)
	}
	for _, name := range names {
		if err := s.endHold(ctx, name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, "Kueue admits.")
	return err
}

// endHold ends the hold of a ClusterQueue for Kueue in one write, or makes it the administrator's own.
func (s *state) endHold(ctx context.Context, name string) error {
	c := &change{}
	c.Metadata.Annotations = map[string]*string{apis.EngineAnnotation: nil, apis.StopPolicyAnnotation: nil}
	c.Spec.StopPolicy = kueue.None
	if isHeldForTranche(s.queues[name]) {
		c.Spec.StopPolicy = kueue.Hold
	}
	var last error
	// The API server may observe the end of the lock later.
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		last = s.patch(ctx, name, c)
		if apierrors.IsInvalid(last) || apierrors.IsForbidden(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil {
		return errors.Join(last, err)
	}
	return nil
}

// toHandBack returns the ClusterQueues that are not Kueue's alone: they have the annotation of an engine, or are locked.
func (s *state) toHandBack() []string {
	var names []string
	for _, name := range s.names {
		if s.queues[name].Annotations[apis.EngineAnnotation] != "" || s.locks[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// isHeldForTranche reports whether an administrator holds a ClusterQueue for Tranche.
func isHeldForTranche(q *kueue.ClusterQueue) bool {
	policy := q.Annotations[apis.StopPolicyAnnotation]
	return policy != "" && policy != string(kueue.None)
}

// await waits until the lock has a state for all ClusterQueues. It names those that have not reached it.
func (s *state) await(ctx context.Context, isReached func(string) bool) error {
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		var lock corev1.ConfigMap
		if err := s.readLock(ctx, &lock); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(s.names, func(name string) bool { return !isReached(s.locks[name]) }), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timed out waiting for %s", strings.Join(s.names, ", "))
	}
	return err
}
