// Package childjob knows the child Jobs of JobSets: what state one is in, and how it must look to run on the flavors that its
// stage was admitted to.
package childjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// IsFinished tells whether a Job has ended with the condition, batchv1.JobComplete or batchv1.JobFailed.
func IsFinished(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

func isOver(job *batchv1.Job) bool {
	return IsFinished(job, batchv1.JobComplete) || IsFinished(job, batchv1.JobFailed)
}

// IsReady tells whether all pods that a Job can have at once are ready or have succeeded, as the JobSet controller counts them.
func IsReady(job *batchv1.Job) bool {
	if ptr.Deref(job.Spec.Suspend, false) {
		return false
	}
	return job.Status.Succeeded+ptr.Deref(job.Status.Ready, 0) >= podsAtOnce(&job.Spec)
}

func podsAtOnce(spec *batchv1.JobSpec) int32 {
	pods := ptr.Deref(spec.Parallelism, 1)
	return min(pods, ptr.Deref(spec.Completions, pods))
}

// IsHeld tells whether a Job waits to be released.
func IsHeld(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.Suspend, false) && !isOver(job) && job.DeletionTimestamp.IsZero()
}

// IsRunning tells whether a Job may have or make pods.
func IsRunning(job *batchv1.Job) bool {
	return !ptr.Deref(job.Spec.Suspend, false) && !isOver(job) && job.DeletionTimestamp.IsZero()
}

// HasPods tells whether a Job has pods that are not terminal, or may still make some.
func HasPods(job *batchv1.Job) bool {
	if isOver(job) {
		return false
	}
	return job.Status.Active > 0 || ptr.Deref(job.Status.Terminating, 0) > 0 || IsRunning(job)
}

// A Template is what the child Jobs of a ReplicatedJob were charged as.
type Template struct {
	// Pods is how many pods one Job can have at once.
	Pods int32
	// Requests of one pod, as the planner counts them.
	Requests corev1.ResourceList
}

// Released returns a copy of a held Job as it should be to run: not suspended, with the node labels and tolerations of the flavors
// that its stage was admitted to. It is an error if the Job asks for more than the template that quota was charged for: then it
// was not made from the JobSet.
func Released(job *batchv1.Job, template Template, assignment *kueue.PodSetAssignment, flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor) (*batchv1.Job, error) {
	if assignment == nil {
		return nil, fmt.Errorf("the Job %q stays held: its quota Workload has no assignment for its pods", job.Name)
	}
	if err := matches(job, template); err != nil {
		return nil, err
	}
	released := job.DeepCopy()
	released.Spec.Suspend = new(false)
	pod := &released.Spec.Template.Spec
	dropNodeLabels(released)
	labels, tolerations, err := directives(assignment, flavors)
	if err != nil {
		return nil, fmt.Errorf("the Job %q stays held: %w", job.Name, err)
	}
	for key, value := range labels {
		if pod.NodeSelector == nil {
			pod.NodeSelector = map[string]string{}
		}
		pod.NodeSelector[key] = value
	}
	for _, toleration := range tolerations {
		if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, toleration) }) {
			pod.Tolerations = append(pod.Tolerations, toleration)
		}
	}
	rememberNodeLabels(released, job, labels)
	return released, nil
}

// matches compares a Job with the template that quota was charged for.
func matches(job *batchv1.Job, template Template) error {
	if pods := podsAtOnce(&job.Spec); pods > template.Pods {
		return fmt.Errorf("the Job %q stays held: it can have %d pods at once, its JobSet gives it %d; delete the Job", job.Name, pods, template.Pods)
	}
	for name, quantity := range stageplan.PodRequests(&job.Spec.Template.Spec) {
		charged := template.Requests[name]
		if quantity.Cmp(charged) > 0 {
			return fmt.Errorf("the Job %q stays held: its pods request %s %s each, its JobSet %s; delete the Job", job.Name, quantity.String(), name, charged.String())
		}
	}
	return nil
}

// directives collects what the flavors of an assignment ask of a pod, in a fixed order.
func directives(assignment *kueue.PodSetAssignment, flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor) (map[string]string, []corev1.Toleration, error) {
	var names []kueue.ResourceFlavorReference
	for _, name := range assignment.Flavors {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	labels := map[string]string{}
	var tolerations []corev1.Toleration
	for _, name := range names {
		flavor := flavors[name]
		if flavor == nil {
			return nil, nil, fmt.Errorf("there is no ResourceFlavor %q, which its stage was admitted to; create it", name)
		}
		maps.Copy(labels, flavor.Spec.NodeLabels)
		tolerations = append(tolerations, flavor.Spec.Tolerations...)
	}
	return labels, tolerations, nil
}

// dropNodeLabels takes back what an earlier release has put on the Job.
func dropNodeLabels(job *batchv1.Job) {
	for _, key := range strings.FieldsFunc(job.Annotations[apis.FlavorNodeLabelsAnnotation], func(r rune) bool { return r == ',' }) {
		delete(job.Spec.Template.Spec.NodeSelector, key)
	}
}

// rememberNodeLabels notes which node labels came from flavors and not from the user.
func rememberNodeLabels(released, before *batchv1.Job, labels map[string]string) {
	var keys []string
	earlier := strings.Split(before.Annotations[apis.FlavorNodeLabelsAnnotation], ",")
	for key := range labels {
		_, fromUser := before.Spec.Template.Spec.NodeSelector[key]
		if !fromUser || slices.Contains(earlier, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	delete(released.Annotations, apis.FlavorNodeLabelsAnnotation)
	if len(keys) == 0 {
		return
	}
	if released.Annotations == nil {
		released.Annotations = map[string]string{}
	}
	released.Annotations[apis.FlavorNodeLabelsAnnotation] = strings.Join(keys, ",")
}
