package lint

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// ownerOfPods returns the kind that owns the pods of an object with a pod template that queues them one by one, or "" for other objects.
func ownerOfPods(gvk schema.GroupVersionKind) string {
	switch gvk.Kind {
	case "Deployment":
		return "ReplicaSet"
	case "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController":
		return gvk.Kind
	}
	return ""
}

// setLabelsOfPods gives a ReplicationController without labels those of its pods, as the API server does.
func setLabelsOfPods(s *source) {
	object := (&unstructured.Unstructured{Object: s.content}).DeepCopy()
	ofPods, _, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
	if len(object.GetLabels()) == 0 && len(ofPods) > 0 {
		object.SetLabels(ofPods)
		s.content = object.Object
	}
}

// podsOf returns one of the pods that the controller of an object creates from its pod template.
func podsOf(s *source) *source {
	template, _, _ := unstructured.NestedMap(s.content, "spec", "template")
	if template == nil {
		template = map[string]any{}
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.SetNamespace(s.namespace())
	pod.SetName(s.Name)
	pod.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: s.GVK.GroupVersion().String(), Kind: ownerOfPods(s.GVK), Name: s.Name, UID: "pods", Controller: new(true),
	}})
	return &source{Object: s.Object, kind: s.kind, content: pod.Object, under: "spec.template."}
}

// addPods decodes a pod that was created from a pod template.
func (o *objects) addPods(pods *source) error {
	raw, err := json.Marshal(pods.content)
	if err == nil {
		err = decodeInto(pods, raw, &o.pods)
	}
	if err != nil {
		return fmt.Errorf("decode the pod template of %s: %w", pods, err)
	}
	return nil
}

// checkPod reports why a queued pod can never be admitted. A pod of a gang needs at least quota for itself.
func (l *linter) checkPod(engine *admission.Engine, origin origin[corev1.Pod]) {
	pod, named := origin.object, origin.source
	queue := pod.Labels[apis.QueueLabel]
	if !podgroup.IsMember(pod) || queue == "" {
		return
	}
	owner := l.sources[origin.key()]
	if (&unstructured.Unstructured{Object: owner.content}).GetLabels()[apis.QueueLabel] == queue {
		named = owner // a policy has copied the labels into the pod template
	}
	l.checkPriorityClass(named, pod.Labels)
	l.checkTopology(origin.source, "", &pod.ObjectMeta)
	if len(l.objects.localQueues) == 0 || len(l.objects.clusterQueues) == 0 || l.leadsToInvalid(pod.Namespace, queue) {
		return
	}
	engine.Apply(admission.NamespaceObserved{Name: pod.Namespace, Labels: l.labelsOf(pod.Namespace)})
	l.checkFits(engine, &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: origin.GVK.Kind + "-" + pod.Name},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), Active: new(true),
			PodSets: []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}},
		},
	}, origin.source, named)
}

// checkTopology reports that pods ask for a topology: Tranche does not admit them, whatever their queue. It returns the annotations of the pods without
// those, so that what else keeps them from being admitted is known, too. at is the path of the pods in the source.
func (l *linter) checkTopology(s *source, at string, pods *metav1.ObjectMeta) map[string]string {
	if l.options.Engine.Leader == admission.LedByKueue {
		return pods.Annotations
	}
	others := maps.Clone(pods.Annotations)
	for _, key := range podgroup.TopologyAnnotations() {
		if _, asks := others[key]; !asks {
			continue
		}
		delete(others, key)
		l.add(s, problem{
			rule: ruleUnsupportedTopology(), field: at + "metadata.annotations[" + key + "]", message: "Tranche does not place pods by topology, and never admits these",
			cure: "remove the annotation, or name a configuration with mode: Beside by --config",
		})
	}
	return others
}
