package workloadstatus

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// PodSetUpdates returns the changes that the AdmissionChecks of a quota Workload request for its pod sets, merged by pod set. It is an error if
// two checks, or a check and the pod set itself, give different values to one label, annotation or node label, or if a check names a pod set that
// does not exist.
func PodSetUpdates(workload *kueue.Workload) (map[kueue.PodSetReference]kueue.PodSetUpdate, error) {
	all := map[kueue.PodSetReference]kueue.PodSetUpdate{}
	for _, check := range Checks(workload, kueue.CheckStateReady) {
		for i := range check.PodSetUpdates {
			update := &check.PodSetUpdates[i]
			podSet := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == update.Name })
			if podSet < 0 {
				return nil, fmt.Errorf("AdmissionCheck %q updates pod set %q, which does not exist", check.Name, update.Name)
			}
			merged, err := merge(all[update.Name], update, &workload.Spec.PodSets[podSet].Template)
			if err != nil {
				return nil, fmt.Errorf("AdmissionCheck %q updates pod set %q: %w", check.Name, update.Name, err)
			}
			all[update.Name] = merged
		}
	}
	return all, nil
}

// PodLabels returns the labels by which a pod names the pod set and the queues of its quota Workload, which has an admission. A ClusterQueue is left
// out if its name is no DNS label, as in Kueue.
func PodLabels(workload *kueue.Workload, podSet kueue.PodSetReference) map[string]string {
	labels := map[string]string{apis.PodSetLabel: string(podSet), apis.LocalQueueLabel: string(workload.Spec.QueueName)}
	if name := string(workload.Status.Admission.ClusterQueue); len(validation.IsDNS1123Label(name)) == 0 {
		labels[apis.ClusterQueueLabel] = name
	}
	return labels
}

// merge adds an update to those of other checks.
func merge(merged kueue.PodSetUpdate, update *kueue.PodSetUpdate, template *corev1.PodTemplateSpec) (kueue.PodSetUpdate, error) {
	merged.Name = update.Name
	for _, field := range []struct {
		name       string
		to         *map[string]string
		from, have map[string]string
	}{
		{"label", &merged.Labels, update.Labels, template.Labels},
		{"annotation", &merged.Annotations, update.Annotations, template.Annotations},
		{"node label", &merged.NodeSelector, update.NodeSelector, template.Spec.NodeSelector},
	} {
		for _, key := range slices.Sorted(maps.Keys(field.from)) {
			value := field.from[key]
			for _, known := range []map[string]string{field.have, *field.to} {
				if other, there := known[key]; there && other != value {
					return merged, fmt.Errorf("%s %q is to be %q, but is %q already", field.name, key, value, other)
				}
			}
			if *field.to == nil {
				*field.to = map[string]string{}
			}
			(*field.to)[key] = value
		}
	}
	for _, toleration := range update.Tolerations {
		if !slices.ContainsFunc(merged.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, toleration) }) {
			merged.Tolerations = append(merged.Tolerations, toleration)
		}
	}
	return merged, nil
}
