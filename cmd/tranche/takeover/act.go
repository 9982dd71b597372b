package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// editorRole is the ClusterRole that grants the right to change ClusterQueues.
const editorRole = "tranche-queue-editor"

var (
	takeOver = verb{(*state).readUnsupported, planTakeover, (*state).takeOver}
	handBack = verb{func(*state, context.Context) error { return nil }, planHandBack, (*state).handBack}
)

// A patch is a merge patch of a ClusterQueue.
type patch struct {
	Metadata struct {
		UID         types.UID          `json:"uid"`
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		StopPolicy kueue.StopPolicy `json:"stopPolicy,omitempty"`
	} `json:"spec"`
}

// write patches a ClusterQueue. A stop policy that is empty stays as it is.
func (s *state) write(ctx context.Context, c *Change) error {
	var p patch
	p.Metadata.UID, p.Metadata.Annotations, p.Spec.StopPolicy = s.queues[c.Name].UID, c.Annotations, c.StopPolicy
	data, err := json.Marshal(&p)
	if err != nil {
		return err
	}
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	err = s.client.Patch(ctx, q, client.RawPatch(types.MergePatchType, data))
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("change ClusterQueue %s: %w; ask for the right to patch ClusterQueues, for example by a ClusterRoleBinding to the ClusterRole %s", c.Name, err, editorRole)
	}
	if err != nil {
		return fmt.Errorf("change ClusterQueue %s: %w", c.Name, ended(err))
	}
	return nil
}

// takeOver carries out the plan of a takeover.
func (s *state) takeOver(ctx context.Context, p *Plan) error {
	undo := "run the command again, or tranche hand-back " + strings.Join(s.names, " ")
	for i := range p.ClusterQueues {
		if err := s.write(ctx, &p.ClusterQueues[i]); err != nil {
			if i == 0 {
				return err
			}
			return fmt.Errorf("%w; ClusterQueues that are held and admit nothing: %s: %s", err, strings.Join(s.names[:i], ", "), undo)
		}
	}
	if err := s.await(ctx, func(lock string) bool { return lock == apis.EngineTranche }); err != nil {
		return fmt.Errorf("%w: do the managers of Kueue and Tranche run? The ClusterQueues stay held: look at their Events; %s", err, undo)
	}
	return nil
}

// handBack carries out the plan of handing back.
func (s *state) handBack(ctx context.Context, p *Plan) error {
	for _, name := range p.changed() {
		// The other annotation stays until the end, so that the command can be repeated.
		if err := s.write(ctx, &Change{Name: name, Annotations: map[string]*string{apis.EngineAnnotation: new(apis.EngineKueue)}}); err != nil {
			return fmt.Errorf("%w: run the command again", err)
		}
	}
	if err := s.await(ctx, func(lock string) bool { return lock == "" }); err != nil {
		return fmt.Errorf("%w: does Tranche's manager run? The ClusterQueues stay held: run the command again", err)
	}
	for i := range p.ClusterQueues {
		if p.ClusterQueues[i].StopPolicy == "" {
			continue
		}
		if err := s.endHold(ctx, &p.ClusterQueues[i]); err != nil {
			return fmt.Errorf("%w: run the command again", err)
		}
	}
	return nil
}

// endHold ends the hold of a ClusterQueue for Kueue in one write, or makes it the administrator's own.
func (s *state) endHold(ctx context.Context, c *Change) error {
	var last error
	// The API server may observe the end of the lock later.
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		last = s.write(ctx, c)
		if apierrors.IsInvalid(last) || apierrors.IsForbidden(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil && last != nil {
		return last
	}
	return ended(err)
}

// ended returns the error of a context that has ended as one that is not replaced: that of an interrupted verb would not say what is held.
func ended(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("timed out")
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	}
	return err
}

// isTaken reports whether a ClusterQueue is not Kueue's alone: it has the annotation of an engine, or is locked.
func (s *state) isTaken(name string) bool {
	return s.queues[name].Annotations[apis.EngineAnnotation] != "" || s.locks[name] != ""
}

// isHeldForTranche reports whether an administrator holds a ClusterQueue for Tranche.
func isHeldForTranche(q *kueue.ClusterQueue) bool {
	policy := q.Annotations[apis.StopPolicyAnnotation]
	return policy != "" && policy != string(kueue.None)
}

// await waits until the lock has a state for all ClusterQueues. The error names those that have not reached it.
func (s *state) await(ctx context.Context, isReached func(string) bool) error {
	var missing []string
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		var lock corev1.ConfigMap
		if err := s.readLock(ctx, &lock); err != nil {
			return false, err
		}
		missing = slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return isReached(s.locks[name]) })
		return len(missing) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w while waiting for %s", ended(ctx.Err()), strings.Join(missing, ", "))
	}
	return err
}
