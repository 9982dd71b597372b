package lint

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/manifest"
	"github.com/tranche-dev/tranche/snapshot"
)

// addCluster adds the objects of the cluster that queues, JobSets and Jobs refer to, if no manifest replaces them. There are no findings about them.
func (l *linter) addCluster() {
	s, o := l.options.Cluster, &l.objects
	if s == nil {
		return
	}
	for _, n := range s.Namespaces {
		o.namespaces[n.Name] = n // checkPolicies replaces those of manifests
	}
	if len(l.options.Nodes) == 0 {
		o.nodes = append(o.nodes, s.Nodes...)
	}
	addKnown(l, s.ResourceFlavors, &o.flavors)
	addKnown(l, s.AdmissionChecks, &o.checks)
	addKnown(l, s.Cohorts, &o.cohorts)
	addKnown(l, s.ClusterQueues, &o.clusterQueues)
	addKnown(l, s.LocalQueues, &o.localQueues)
	addKnown(l, s.PriorityClasses, &o.classes)
	addKnown(l, s.LimitRanges, &o.limitRanges)
	addKnown(l, s.RuntimeClasses, &o.runtimeClasses)
	addKnown(l, s.DeviceClasses, &o.deviceClasses)
	addKnown(l, s.ResourceClaimTemplates, &o.claimTemplates)
}

// addKnown adds the objects of one kind that the cluster has and that no manifest gives. Manifests with errors count, too.
func addKnown[T any, P interface {
	*T
	snapshot.Object
}](l *linter, known []*T, list *[]origin[T]) {
	for _, object := range known {
		named := P(object)
		gvk := snapshot.KindOf(named).GVK
		s := &source{
			Object: &manifest.Object{GVK: gvk, Namespace: named.GetNamespace(), Name: named.GetName()}, kind: kindOf(gvk), isValid: true, isOfCluster: true,
		}
		if l.sources[s.key()] != nil {
			continue
		}
		l.sources[s.key()] = s
		*list = append(*list, origin[T]{s, object})
	}
}

// clusterLocalQueues returns the LocalQueues that only the cluster has, by namespace, as the policies read them.
func (l *linter) clusterLocalQueues() (map[string][]*unstructured.Unstructured, error) {
	byNamespace := map[string][]*unstructured.Unstructured{}
	for _, q := range l.objects.localQueues {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(q.object)
		if err != nil {
			return nil, fmt.Errorf("convert %s: %w", q.source, err)
		}
		byNamespace[q.object.Namespace] = append(byNamespace[q.object.Namespace], &unstructured.Unstructured{Object: content})
	}
	return byNamespace, nil
}
