package jobset

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/controllers/conditions"
)

// gatherGangs makes sure that the objects of a stage's gangs are there before its Jobs start, and tells whether they may. What does not
// fit any more is left to pods that still go by it.
func (w *wanted) gatherGangs(s *seen, st *stage) bool {
	if wrong := s.gangs.Wrong(st.index); len(wrong) > 0 && !st.hasPods {
		w.disperse = append(w.disperse, wrong...)
		return false
	}
	w.gather = append(w.gather, s.gangs.Missing(st.index)...)
	return true
}

// withGangs adds what is said about the gangs of the JobSet.
func withGangs(s *seen, all []metav1.Condition) []metav1.Condition {
	reason, message := gangNews(s)
	return conditions.WithGangs(s.jobSet, all, reason, message)
}

func gangNews(s *seen) (reason, message string) {
	switch {
	case s.keeper == nil:
		return conditions.GangsNotConfigured, "gang.provider in the manager's configuration names no scheduler"
	case !s.keeper.Served():
		return conditions.GangsNotServed, "the API server has no PodGroups of scheduling.k8s.io that the manager knows; ask your administrator to turn on" +
			" the feature gate GenericWorkload and to serve scheduling.k8s.io/v1alpha2 (--runtime-config), and to restart the manager"
	case s.gangs == nil:
		return conditions.GangsMisconfigured, s.refusal
	}
	if job := s.namelessJob(); job != "" {
		return conditions.GangsNotNamed, fmt.Sprintf("the pods of Job %q name no PodGroup, and are placed one by one: the API server has left"+
			" spec.schedulingGroup out, or the policy tranche-gang-jobs was not there when the JobSet was created", job)
	}
	if taken := s.gangs.Taken(); taken != "" {
		return conditions.GangsOfUser, taken
	}
	return conditions.GangsKept, fmt.Sprintf("%d gangs, each with a PodGroup of %s from when its stage is admitted", s.gangs.Gangs(), s.keeper.Version())
}

// namelessJob returns the first Job of the attempt that should be in a gang and whose pods name none.
func (s *seen) namelessJob() string {
	first := ""
	for _, job := range s.mine.jobs {
		index, err := strconv.ParseInt(job.Labels[jobset.JobIndexKey], 10, 32)
		if err != nil || job.Labels[restartAttemptLabel] != attemptOf(s.jobSet) || first != "" && first < job.Name {
			continue
		}
		if !s.gangs.IsNamed(replicatedJobOf(job), int32(index), &job.Spec.Template) {
			first = job.Name
		}
	}
	return first
}

// gather makes the objects of gangs.
func (r *Reconciler) gather(ctx context.Context, _ *seen, w *wanted) error {
	for _, object := range w.gather {
		// The client writes its answer into the object.
		if err := r.config.Client.Create(ctx, object.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// disperse deletes objects of gangs, but for those that are on their way already.
func (r *Reconciler) disperse(ctx context.Context, _ *seen, w *wanted) error {
	for _, object := range w.disperse {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.config.Client.Delete(ctx, &unstructured.Unstructured{Object: object.Object}, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}
