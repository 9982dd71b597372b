package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

type jobSet = jobsetapi.JobSet

// defaultQueue is the LocalQueue of JobSets that name none, if it exists in their namespace.
const defaultQueue = "default"

// submit completes a new JobSet as the API server and the admission policies do: it is suspended, and its Jobs are held.
func (c *Change) submit(js *jobSet) error {
	js.Status = jobSet{}.Status
	if apis.QueueNameOf(js.Labels) == "" && c.hasLocalQueue(js.Namespace, defaultQueue) {
		js.Labels = union(js.Labels, map[string]string{apis.QueueLabel: defaultQueue})
	}
	if apis.QueueNameOf(js.Labels) == "" {
		return fmt.Errorf("metadata.labels: the JobSet names no LocalQueue, so it would start without quota: set the label %s", apis.QueueLabel)
	}
	if len(js.Spec.ReplicatedJobs) == 0 {
		return errors.New("spec.replicatedJobs is empty: add a ReplicatedJob")
	}
	setJobSetDefaults(js)
	js.Spec.Suspend = new(true)
	for i := range js.Spec.ReplicatedJobs {
		template := &js.Spec.ReplicatedJobs[i].Template
		template.Labels = union(template.Labels, map[string]string{apis.HoldLabel: apis.HoldValue})
	}
	return nil
}

func (c *Change) hasLocalQueue(namespace, name string) bool {
	return slices.ContainsFunc(c.after.LocalQueues, func(q *kueue.LocalQueue) bool { return q.Namespace == namespace && q.Name == name })
}

// mergeJobSet returns a JobSet as it is after a manifest was applied. Admission policies, the JobSet controller and the manager have added fields to
// it, so the fields of the manifest are laid over those of the JobSet.
func mergeJobSet(before, manifest *jobSet) (*jobSet, error) {
	merged := &jobSet{}
	if err := layOver(before, manifest, merged); err != nil {
		return nil, err
	}
	labels, annotations := merged.Labels, merged.Annotations
	keepMetadata(before, merged)
	merged.Labels, merged.Annotations = labels, annotations
	// A JobSet that the manager has not started stays suspended. Afterwards the field belongs to its user.
	_, isStarted := before.Annotations[apis.StartedAnnotation]
	if !isStarted || manifest.Spec.Suspend == nil {
		merged.Spec.Suspend = new(ptr.Deref(before.Spec.Suspend, false))
	}
	return merged, nil
}

// layOver decodes the fields of an object with those of a manifest over them, but for the status.
func layOver(before, manifest, merged any) error {
	old, err := tree(before)
	if err != nil {
		return err
	}
	now, err := tree(manifest)
	if err != nil {
		return err
	}
	delete(now, "status")
	content, err := json.Marshal(overlay(old, now))
	if err != nil {
		return err
	}
	return json.Unmarshal(content, merged)
}

// overlay returns the fields of both objects. The second one counts where both have a field. Elements of lists are matched by their names.
func overlay(below, above any) any {
	switch above := above.(type) {
	case map[string]any:
		old, isMap := below.(map[string]any)
		if !isMap {
			return above
		}
		all := map[string]any{}
		maps.Copy(all, old)
		for key, value := range above {
			all[key] = overlay(all[key], value)
		}
		return all
	case []any:
		old, _ := below.([]any)
		oldNames, newNames := namesIn(old), namesIn(above)
		if oldNames == nil || newNames == nil {
			return above
		}
		all := make([]any, len(above))
		for i, name := range newNames {
			all[i] = overlay(at(old, slices.Index(oldNames, name)), above[i])
		}
		return all
	case nil:
		return below
	}
	return above
}

// isMutable reports whether the API server accepts another value of a field of a JobSet. Pod templates can change while the JobSet is suspended.
func isMutable(path string) bool {
	if path == "spec.suspend" || strings.HasPrefix(path, "spec.ttlSecondsAfterFinished") {
		return true
	}
	_, inJob, isInJob := strings.Cut(path, "].template.")
	return isInJob && slices.ContainsFunc([]string{
		"metadata", "spec.parallelism", "spec.completions", "spec.template.metadata", "spec.template.spec.nodeSelector", "spec.template.spec.tolerations",
		"spec.template.spec.schedulingGates",
	}, func(field string) bool { return isWithin(inJob, field) })
}

// isWithin reports whether a path is that of a field or of a part of it.
func isWithin(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}
