package jobset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A scheduler is the scheduler that places the gangs of a JobSet. The manager chooses it when it starts the JobSet, and writes it into the
// pod templates: fields that Jobs need from their creation on cannot change when a stage gets other flavors. In order of precedence:
//
//	flavors of the stages that are admitted at the start, then the LocalQueue, then gang.provider
type scheduler struct {
	// byDefault is the name of the scheduler in the configuration.
	byDefault string
	// schedulerName of the pods, or "" if they keep their own.
	schedulerName string
	// problem says what is wrong with the annotation that names the scheduler, and what to change.
	problem string
}

// of returns the scheduler that a pod template names.
func (c *scheduler) of(template *corev1.PodTemplateSpec) string {
	return cmp.Or(template.Annotations[apis.GangProviderAnnotation], c.byDefault)
}

// chooseScheduler determines which scheduler places the gangs of a JobSet.
func (r *Reconciler) chooseScheduler(ctx context.Context, s *snapshot) error {
	s.backend = r.config.Gangs.Default()
	s.scheduler.byDefault = s.backend.Name()
	members := gangMembers(s.jobSet)
	if len(members) == 0 || r.config.Gangs == nil {
		return nil
	}
	name, field := s.scheduler.of(podTemplateOf(s.jobSet, members[0])), "the pod templates"
	if !isStarted(s.jobSet) && !s.isUnqueued {
		var err error
		if name, field, err = r.annotatedScheduler(ctx, s); err != nil {
			return err
		}
	}
	backend, err := r.config.Gangs.Of(cmp.Or(name, s.scheduler.byDefault))
	if err != nil {
		s.scheduler.problem = fmt.Sprintf("metadata.annotations[%s] of %s: %v; until then it is %s", apis.GangProviderAnnotation, field, err, s.backend.Name())
		return nil
	}
	s.backend, s.scheduler.schedulerName = backend, r.config.Gangs.SchedulerName(backend)
	return nil
}

// annotatedScheduler returns the scheduler that a flavor or the LocalQueue of a JobSet names, and the object that does.
func (r *Reconciler) annotatedScheduler(ctx context.Context, s *snapshot) (name, object string, err error) {
	for _, flavor := range slices.Sorted(maps.Keys(s.flavors)) {
		if name := s.flavors[flavor].Annotations[apis.GangProviderAnnotation]; name != "" {
			return name, fmt.Sprintf("ResourceFlavor %q", flavor), nil
		}
	}
	var queue kueue.LocalQueue
	key := types.NamespacedName{Namespace: s.key.Namespace, Name: string(queueOf(s.jobSet))}
	if err := r.config.Client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("read LocalQueue %s: %w", key, err)
	}
	return queue.Annotations[apis.GangProviderAnnotation], fmt.Sprintf("LocalQueue %q", key.Name), nil
}

// contradiction says which flavor names another scheduler than the one for which the JobSet was started.
func (s *snapshot) contradiction() string {
	for _, flavor := range slices.Sorted(maps.Keys(s.flavors)) {
		if name := s.flavors[flavor].Annotations[apis.GangProviderAnnotation]; name != "" && name != s.backend.Name() {
			return fmt.Sprintf("ResourceFlavor %q names %s for them (%s), but the Jobs were made for %s: a JobSet keeps the scheduler that it was started with; "+
				"let all flavors of the JobSet name one, or submit it again", flavor, name, apis.GangProviderAnnotation, s.backend.Name())
		}
	}
	return ""
}

// gangMembers returns the indexes of the ReplicatedJobs whose pods are in gangs.
func gangMembers(js *jobsetapi.JobSet) []int {
	var members []int
	for i := range js.Spec.ReplicatedJobs {
		if js.Spec.ReplicatedJobs[i].Template.Annotations[apis.GangGroupAnnotation] != "" {
			members = append(members, i)
		}
	}
	return members
}

func podTemplateOf(js *jobsetapi.JobSet, i int) *corev1.PodTemplateSpec {
	return &js.Spec.ReplicatedJobs[i].Template.Spec.Template
}

// isMisnamed reports whether the pod templates of a JobSet name another scheduler than the one that places its gangs.
func (s *snapshot) isMisnamed() bool {
	return slices.ContainsFunc(gangMembers(s.jobSet), func(i int) bool {
		return s.scheduler.of(podTemplateOf(s.jobSet, i)) != s.backend.Name()
	})
}

// isOfOtherScheduler reports whether a held Job was created for another scheduler. It has to be recreated.
func (s *snapshot) isOfOtherScheduler(job *batchv1.Job) bool {
	return job.Annotations[apis.GangGroupAnnotation] != "" && s.scheduler.of(&job.Spec.Template) != s.backend.Name()
}

// setScheduler writes the scheduler into the pod templates of a suspended JobSet. A merge patch would have to repeat all ReplicatedJobs, including
// fields that this version does not know.
func (r *Reconciler) setScheduler(ctx context.Context, s *snapshot, w *actions) error {
	if !w.setScheduler {
		return nil
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	operations := []operation{{"test", "/metadata/uid", s.jobSet.UID}, {"test", "/metadata/generation", s.jobSet.Generation}}
	for _, i := range gangMembers(s.jobSet) {
		template := podTemplateOf(s.jobSet, i)
		annotations := maps.Clone(template.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[apis.GangProviderAnnotation] = s.backend.Name()
		annotations[apis.GangSchedulerAnnotation] = s.scheduler.schedulerName
		path := fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template/metadata", i)
		if len(template.Labels)+len(template.Annotations) == 0 {
			operations = append(operations, operation{"add", path, map[string]any{"annotations": annotations}})
		} else {
			operations = append(operations, operation{"add", path + "/annotations", annotations})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("render the scheduler of JobSet %s: %w", s.key, err)
	}
	if err := r.config.Client.Patch(ctx, s.jobSet.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("name the scheduler %s in JobSet %s: %w", s.backend.Name(), s.key, err)
	}
	return nil
}
