package lint

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/manifest"
)

// isOfController reports whether an object is a Job, a pod or has a pod template, and a controller has created it. Such objects are in the output of
// kubectl, and users do not submit them.
func isOfController(o *manifest.Object) bool {
	var metadata metav1.PartialObjectMetadata
	if o.GVK != batchv1.SchemeGroupVersion.WithKind("Job") && o.GVK != corev1.SchemeGroupVersion.WithKind("Pod") && ownerOfPods(o.GVK) == "" {
		return false
	}
	_, err := o.Decode(&metadata)
	return err == nil && metav1.GetControllerOfNoCopy(&metadata) != nil
}

// setJobDefaults gives a Job, or the Jobs of a CronJob, the defaults of the API server that the policies read.
func setJobDefaults(s *source) {
	object := (&unstructured.Unstructured{Object: s.content}).DeepCopy().Object
	s.content = object
	if s.GVK.Kind == "CronJob" {
		object, _, _ = unstructured.NestedMap(object, "spec", "jobTemplate")
	}
	spec, isSpec := object["spec"].(map[string]any)
	if !isSpec {
		return // the schema objects to it
	}
	if spec["parallelism"] == nil && spec["completions"] == nil {
		spec["completions"] = int64(1)
	}
	if spec["parallelism"] == nil {
		spec["parallelism"] = int64(1)
	}
	ofPods, _, _ := unstructured.NestedMap(spec, "template", "metadata", "labels")
	if own, _, _ := unstructured.NestedMap(object, "metadata", "labels"); len(own) == 0 && len(ofPods) > 0 {
		// The content has no other types than maps, so that this cannot fail.
		_ = unstructured.SetNestedMap(object, ofPods, "metadata", "labels")
	}
	if s.GVK.Kind == "CronJob" {
		_ = unstructured.SetNestedMap(s.content, object, "spec", "jobTemplate")
	}
}

// jobTemplate returns the content of the Jobs that a CronJob creates.
func jobTemplate(cronJob map[string]any) map[string]any {
	job, _, _ := unstructured.NestedMap(cronJob, "spec", "jobTemplate")
	if job == nil {
		job = map[string]any{}
	}
	job["apiVersion"], job["kind"] = batchv1.SchemeGroupVersion.String(), "Job"
	of := &unstructured.Unstructured{Object: job}
	of.SetName((&unstructured.Unstructured{Object: cronJob}).GetName())
	return job
}

// resourceOf returns the resource that is created, which for a CronJob is its Job.
func resourceOf(s *source) schema.GroupVersionResource {
	if s.under != "" {
		return batchv1.SchemeGroupVersion.WithResource("jobs")
	}
	return s.GVK.GroupVersion().WithResource(s.kind.resource)
}

// checkJob reports why a queued Job can never be admitted, and annotations without effect.
func (l *linter) checkJob(engine *admission.Engine, origin origin[batchv1.Job]) {
	job := origin.object.DeepCopy()
	if !queuedjob.IsQueued(job) {
		return
	}
	l.checkPriorityClass(origin.source, job.Labels)
	job.Spec.Template.Annotations = l.checkTopology(origin.source, "spec.template.", &job.Spec.Template.ObjectMeta)
	queue := job.Labels[apis.QueueLabel]
	if len(l.objects.localQueues) == 0 || len(l.objects.clusterQueues) == 0 || l.leadsToInvalid(job.Namespace, queue) {
		return
	}
	job.UID = types.UID(job.Namespace + "/" + job.Name)
	engine.Apply(admission.NamespaceObserved{Name: job.Namespace, Labels: l.labelsOf(job.Namespace)})
	step := queuedjob.Next(&queuedjob.Snapshot{
		Key: types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, Job: job, Template: &job.Spec.Template, Priority: jobsetstate.Priority{},
	})
	for _, workload := range step.Workloads(quotastep.Create) {
		l.checkFits(engine, workload, origin.source, origin.source)
	}
}

// checkFits reports why a quota Workload can never be admitted: at the source of its pods, or at that of its queue name.
func (l *linter) checkFits(engine *admission.Engine, workload *kueue.Workload, pods, queue *source) {
	refusal, isRefused := explain(engine, workload)
	if !isRefused {
		return
	}
	if p, isAboutQueue := problemOfQueue(refusal); isAboutQueue {
		if p != nil {
			l.add(queue, *p)
		}
		return
	}
	l.add(pods, problem{
		rule: ruleNeverFits(), field: "spec", message: refusal.Message + " (" + refusal.Check + ")", cure: "request less, or raise the quota",
	})
}

// checkPriorityClass reports a WorkloadPriorityClass that does not exist.
func (l *linter) checkPriorityClass(s *source, labels map[string]string) {
	name := labels[apis.PriorityClassLabel]
	isNamed := func(c origin[kueue.WorkloadPriorityClass]) bool { return c.object.Name == name }
	if name == "" || len(l.objects.classes) == 0 || slices.ContainsFunc(l.objects.classes, isNamed) || l.isInvalid("WorkloadPriorityClass", "", name) {
		return
	}
	l.add(s, problem{
		rule: ruleMissingPriorityClass(), field: "metadata.labels[" + apis.PriorityClassLabel + "]", message: fmt.Sprintf("there is no WorkloadPriorityClass %s", name),
		cure: "create the WorkloadPriorityClass, or name another one",
	})
}
