package lint

import (
	"encoding/json"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/manifest"
)

// An origin is a decoded object, and where it is written.
type origin[T any] struct {
	*source
	object *T
}

// objects are the objects that the API server accepts, by kind: those that only the cluster has, then the others in the order of the manifests.
type objects struct {
	namespaces    map[string]*corev1.Namespace
	nodes         []*corev1.Node
	flavors       []origin[kueue.ResourceFlavor]
	checks        []origin[kueue.AdmissionCheck]
	cohorts       []origin[kueue.Cohort]
	clusterQueues []origin[kueue.ClusterQueue]
	localQueues   []origin[kueue.LocalQueue]
	jobSets       []origin[jobsetapi.JobSet]
	jobs          []origin[batchv1.Job]
	// pods are single ones and one for each pod template.
	pods           []origin[corev1.Pod]
	classes        []origin[kueue.WorkloadPriorityClass]
	limitRanges    []origin[corev1.LimitRange]
	runtimeClasses []origin[nodev1.RuntimeClass]
	deviceClasses  []origin[resourcev1.DeviceClass]
	claimTemplates []origin[resourcev1.ResourceClaimTemplate]
}

// addNamespace adds a Namespace before the other objects, since the policies depend on its labels.
func (o *objects) addNamespace(s *source) {
	labels := (&unstructured.Unstructured{Object: s.content}).GetLabels()
	namespace := &corev1.Namespace{}
	namespace.Name, namespace.Labels = s.Name, labels
	o.namespaces[s.Name] = namespace
}

// add decodes an object.
func (o *objects) add(s *source) error {
	if !s.isValid {
		return nil
	}
	raw, err := json.Marshal(s.content)
	if err == nil {
		err = o.decode(s, raw)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", s, err)
	}
	return nil
}

func (o *objects) decode(s *source, raw []byte) error {
	switch s.GVK.Kind {
	case "Node":
		node := &corev1.Node{}
		o.nodes = append(o.nodes, node)
		return json.Unmarshal(raw, node)
	case "ResourceFlavor":
		return decodeInto(s, raw, &o.flavors)
	case "AdmissionCheck":
		return decodeInto(s, raw, &o.checks)
	case "Cohort":
		return decodeInto(s, raw, &o.cohorts)
	case "ClusterQueue":
		return decodeInto(s, raw, &o.clusterQueues)
	case "LocalQueue":
		return decodeInto(s, raw, &o.localQueues)
	case "JobSet":
		return decodeInto(s, raw, &o.jobSets)
	case "Job", "CronJob":
		return decodeInto(s, raw, &o.jobs)
	case "Pod":
		return decodeInto(s, raw, &o.pods)
	case "WorkloadPriorityClass":
		return decodeInto(s, raw, &o.classes)
	case "LimitRange":
		return decodeInto(s, raw, &o.limitRanges)
	case "RuntimeClass":
		return decodeInto(s, raw, &o.runtimeClasses)
	case "DeviceClass":
		return decodeInto(s, raw, &o.deviceClasses)
	case "ResourceClaimTemplate":
		return decodeInto(s, raw, &o.claimTemplates)
	}
	return nil
}

func decodeInto[T any](s *source, raw []byte, list *[]origin[T]) error {
	object := new(T)
	*list = append(*list, origin[T]{s, object})
	return json.Unmarshal(raw, object)
}

// labelsOf returns the labels of a namespace: of one that neither the manifests nor the cluster have only the label that the API server gives each namespace.
func (l *linter) labelsOf(namespace string) map[string]string {
	all := map[string]string{corev1.LabelMetadataName: namespace}
	if object, isGiven := l.objects.namespaces[namespace]; isGiven {
		maps.Copy(all, object.Labels)
	}
	return all
}

// Nodes decodes Nodes. An object of another kind is an error.
func Nodes(manifests []*manifest.Object) ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	for _, m := range manifests {
		if m.GVK != corev1.SchemeGroupVersion.WithKind("Node") {
			return nil, fmt.Errorf("%s: %s is no Node: give the output of kubectl get nodes -o yaml", m.At(), m)
		}
		node := &corev1.Node{}
		if _, err := m.Decode(node); err != nil {
			return nil, fmt.Errorf("%s: %w", m.At(), err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}
