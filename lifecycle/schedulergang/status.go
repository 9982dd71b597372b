package schedulergang

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Status is the status of one gang according to the API server.
type Status struct {
	// Exists is true if its object exists.
	Exists bool
	// Min is how many pods the gang requires, or 0 if that is not known.
	Min int64
	// Changed is true if the object belongs to the JobSet and has drifted.
	Changed bool
	// Reports is true if the scheduler reports on objects by conditions. Unschedulable says why it has no place for the gang.
	Reports       bool
	Unschedulable string
}

// ObjectOf returns the name of the object by which the pods of a Job are placed, or "".
func (s *State) ObjectOf(replicatedJob string, job int32) string {
	for _, userGang := range s.GangSet.UserGangs {
		if userGang.ReplicatedJob == replicatedJob {
			return userGang.Name
		}
	}
	fields := s.PodFields(replicatedJob, job)
	return s.provider.UserGangName(&corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: fields.Labels, Annotations: fields.Annotations},
		Spec:       corev1.PodSpec{SchedulingGroup: fields.SchedulingGroup},
	})
}

// StatusOf returns the status of the gang with this object.
func (s *State) StatusOf(name string) Status {
	object := s.userGangs[name]
	status := Status{}
	s.compare(s.named[name], func(_, _ *unstructured.Unstructured, same bool) { status.Changed = status.Changed || !same })
	if object == nil {
		object = s.existing[id{PodGroupKind, name}]
	}
	if object == nil {
		return status
	}
	status.Exists = true
	for _, path := range [][]string{{"spec", "minMember"}, {"spec", "schedulingPolicy", "gang", "minCount"}} {
		if pods, found, err := unstructured.NestedInt64(object.Object, path...); found && err == nil {
			status.Min = pods
		}
	}
	status.readConditions(object)
	return status
}

// readConditions reads the conditions of Kubernetes 1.36 and 1.37, and those of Volcano.
func (s *Status) readConditions(object *unstructured.Unstructured) {
	says := map[string]map[string]any{}
	all, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range all {
		if condition, ok := c.(map[string]any); ok {
			if kind, ok := condition["type"].(string); ok {
				says[kind] = condition
			}
		}
	}
	field := func(kind, name string) string {
		value, _ := says[kind][name].(string)
		return value
	}
	for _, kind := range []string{"PodGroupScheduled", "PodGroupInitiallyScheduled"} {
		if says[kind] != nil {
			s.Reports = true
			if field(kind, "status") == string(metav1.ConditionFalse) {
				s.Unschedulable = field(kind, "message")
			}
		}
	}
	if says["Unschedulable"] == nil && says["Scheduled"] == nil {
		return
	}
	s.Reports = true
	// Volcano adds one condition and leaves the other unchanged.
	if field("Unschedulable", "status") == string(metav1.ConditionTrue) && field("Unschedulable", "lastTransitionTime") >= field("Scheduled", "lastTransitionTime") {
		s.Unschedulable = field("Unschedulable", "message")
	}
}
