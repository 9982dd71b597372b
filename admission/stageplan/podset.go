package stageplan

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// podSetsOf makes the PodSets of all ReplicatedJobs, in the order of the spec.
func podSetsOf(spec *jobsetv1alpha2.JobSetSpec) ([]PodSet, Problems) {
	var problems Problems
	podSets := make([]PodSet, 0, len(spec.ReplicatedJobs))
	for i := range spec.ReplicatedJobs {
		job := &spec.ReplicatedJobs[i]
		template := &job.Template.Spec.Template
		count, wrong := podCount(job, jobField(i))
		problems = append(problems, wrong...)
		podSet := PodSet{Name: job.Name, Count: count, Requests: PodRequests(&template.Spec), Template: template}
		problems = append(problems, podSet.checkAmounts(jobField(i)+".template.spec.template.spec")...)
		podSets = append(podSets, podSet)
	}
	return podSets, problems
}

// podCount returns how many pods of a ReplicatedJob can exist at once: a Job runs no more pods than there are completions left.
func podCount(job *jobsetv1alpha2.ReplicatedJob, field string) (int32, Problems) {
	var problems Problems
	parallelism, completions := ptr.Deref(job.Template.Spec.Parallelism, 1), ptr.Deref(job.Template.Spec.Completions, math.MaxInt32)
	for _, count := range []struct {
		field string
		n     int32
	}{{".template.spec.parallelism", parallelism}, {".template.spec.completions", completions}, {".replicas", job.Replicas}} {
		if count.n < 0 {
			problems = problems.addf(field+count.field, "%d must not be negative", count.n)
		}
	}
	if len(problems) > 0 {
		return 0, problems
	}
	perJob := min(parallelism, completions)
	if perJob > 0 && job.Replicas > math.MaxInt32/perJob {
		problems = problems.addf(field+".replicas", "%d Jobs of %d pods each are more than %d pods", job.Replicas, perJob, math.MaxInt32)
		return 0, problems
	}
	return job.Replicas * perJob, nil
}

// PodRequests returns what a pod of this spec asks for, as the scheduler counts it: with init containers, sidecars and overhead,
// and after the API server has set its defaults, limits where requests are missing. Defaults are set on pods only, not on the pod
// templates of a JobSet, so it is done here on a copy.
//
// The result must not be changed: it may be that of the only container.
func PodRequests(spec *corev1.PodSpec) corev1.ResourceList {
	if requests, only := onlyRequests(spec); only {
		return requests
	}
	return resourcehelper.PodRequests(&corev1.Pod{Spec: *WithDefaultRequests(spec)}, resourcehelper.PodResourcesOptions{})
}

// WithDefaultRequests returns a copy of a pod spec in which missing requests are set to the limits, of containers and of the pod as a whole.
// The API server does this to each new pod first, before its LimitRanges apply.
func WithDefaultRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	pod := corev1.Pod{Spec: *spec}
	pod.Spec.Containers = withDefaultRequests(spec.Containers)
	pod.Spec.InitContainers = withDefaultRequests(spec.InitContainers)
	if spec.Resources != nil {
		pod.Spec.Resources = spec.Resources.DeepCopy()
		defaultPodLevelRequests(&pod)
	}
	return &pod.Spec
}

// onlyRequests returns the requests of the only container, if nothing else counts, as in most pods.
func onlyRequests(spec *corev1.PodSpec) (requests corev1.ResourceList, ok bool) {
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 || spec.Overhead != nil || spec.Resources != nil {
		return nil, false
	}
	of := &spec.Containers[0].Resources
	for name := range of.Limits {
		if _, also := of.Requests[name]; !also {
			return nil, false
		}
	}
	return of.Requests, true
}

// withDefaultRequests returns the containers with missing requests set to their limits.
func withDefaultRequests(containers []corev1.Container) []corev1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		r := &containers[i].Resources
		requests := maps.Clone(r.Limits)
		if requests == nil {
			continue
		}
		maps.Copy(requests, r.Requests)
		r.Requests = requests
	}
	return containers
}

// defaultPodLevelRequests adds requests of the whole pod where it has limits: the sum of its containers for what they request, and else the limit.
// Of huge pages, requests must equal limits.
func defaultPodLevelRequests(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if len(r.Limits) == 0 {
		return
	}
	requests := maps.Clone(r.Limits)
	for name, sum := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if resourcehelper.IsSupportedPodLevelResource(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			requests[name] = sum
		}
	}
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}
