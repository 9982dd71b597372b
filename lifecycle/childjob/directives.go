package childjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// A Template is the size and the requests for which the child Jobs of a ReplicatedJob were charged.
type Template struct {
	// Pods is how many pods one Job can have at once.
	Pods int32
	// First is how many pods it begins with, if that is fewer. The Job must be Indexed then.
	First int32
	// Requests are those of one pod, as the planner counts them.
	Requests corev1.ResourceList
}

// An Update is a change of the pods of one pod set, requested for instance by a Ready AdmissionCheck.
type Update struct {
	// By names the source of the request, in words such as: the podSetUpdates of AdmissionCheck "capacity".
	By     string
	Update kueue.PodSetUpdate
	// Gates are the scheduling gates of the pods.
	Gates []string
}

// CheckedBy returns the By of an Update that an AdmissionCheck requests.
func CheckedBy(check kueue.AdmissionCheckReference) string {
	return fmt.Sprintf("the podSetUpdates of AdmissionCheck %q", check)
}

// Released returns a copy of a held Job as it must be to run: not suspended, replacing pods only when they have terminated, with the node labels and
// tolerations of the flavors that its stage was admitted to, and with the updates. It returns an error if the Job asks for more than the template that quota was charged for:
// such a Job was not created from the JobSet. It also returns an error if an update contradicts the Job, a flavor or another update.
func Released(job *batchv1.Job, template Template, assignment *kueue.PodSetAssignment, flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor, updates ...Update) (*batchv1.Job, error) {
	if assignment == nil {
		return nil, fmt.Errorf("the Job %q stays held: its quota Workload has no assignment for its pods", job.Name)
	}
	if err := matches(job, template); err != nil {
		return nil, err
	}
	labels, tolerations, err := directives(assignment, flavors)
	if err != nil {
		return nil, fmt.Errorf("the Job %q stays held: %w", job.Name, err)
	}
	released := ReplacingLate(Restored(job))
	if template.First > 0 && template.First < PodsAtOnce(job) {
		released = Resized(released, template.First)
	}
	return release(released, labels, tolerations, updates)
}

// ReleasedUnqueued does the same for a Job that runs without quota. It changes nothing but the updates.
func ReleasedUnqueued(job *batchv1.Job, updates ...Update) (*batchv1.Job, error) {
	return release(Restored(job), nil, nil, updates)
}

// release unsuspends a restored Job with these node labels, tolerations and updates.
func release(released *batchv1.Job, labels map[string]string, tolerations []corev1.Toleration, updates []Update) (*batchv1.Job, error) {
	released.Spec.Suspend = new(false)
	var added additions
	added.nodeLabels = addMap(&released.Spec.Template.Spec.NodeSelector, labels)
	added.addTolerations(&released.Spec.Template.Spec, tolerations)
	for i := range updates {
		if err := added.merge(&released.Spec.Template, &updates[i].Update); err != nil {
			return nil, fmt.Errorf("the Job %q stays held: %s %w", released.Name, updates[i].By, err)
		}
		added.addGates(&released.Spec.Template.Spec, updates[i].Gates)
	}
	countRelease(released)
	return released, added.note(released)
}

// countRelease numbers the releases of a Job that is in a group, so that its pods can be distinguished from those of earlier releases:
// signals for those pods do not apply to these.
func countRelease(job *batchv1.Job) {
	if job.Annotations[apis.GroupStartAnnotation] == "" {
		return
	}
	template := &job.Spec.Template.ObjectMeta
	// Only the manager writes it. If the value is not a number, the count starts again.
	releases, _ := strconv.Atoi(template.Annotations[apis.ReleaseAnnotation])
	metav1.SetMetaDataAnnotation(template, apis.ReleaseAnnotation, strconv.Itoa(max(releases, 0)+1))
}

// Honors returns an error if the pod template of a Job with running pods lacks any of the updates, which can then no longer be added.
func Honors(job *batchv1.Job, updates ...Update) error {
	for i := range updates {
		var added additions
		with := job.DeepCopy()
		err := added.merge(&with.Spec.Template, &updates[i].Update)
		if err == nil && !equality.Semantic.DeepEqual(with.Spec.Template, job.Spec.Template) {
			err = errors.New("ask for what the pods that run do not have")
		}
		if err != nil {
			return fmt.Errorf("the Job %q stays as it is: %s %w", job.Name, updates[i].By, err)
		}
	}
	return nil
}

// Restored returns a copy of a Job without the additions of earlier admissions to its pod template.
func Restored(job *batchv1.Job) *batchv1.Job {
	restored := job.DeepCopy()
	template := &restored.Spec.Template
	for _, key := range strings.FieldsFunc(job.Annotations[apis.FlavorNodeLabelsAnnotation], func(r rune) bool { return r == ',' }) {
		delete(template.Spec.NodeSelector, key)
	}
	var added additions
	// A value that cannot be parsed was not written by the manager, and the admission policies reject other writers.
	if json.Unmarshal([]byte(job.Annotations[apis.AdmissionAdditionsAnnotation]), &added) == nil {
		added.Labels = slices.DeleteFunc(added.Labels, func(key string) bool { return selects(job.Spec.Selector, key) })
		added.takeBack(template)
	}
	delete(restored.Annotations, apis.FlavorNodeLabelsAnnotation)
	delete(restored.Annotations, apis.AdmissionAdditionsAnnotation)
	return restored
}

// WithForeignAdditions records in annotations what another manager has added to the pod template of a Job: labels that name the quota of its pods, the
// scheduling gate of elastic Jobs, and, if the template before the additions is known, node labels, tolerations, other gates, labels and annotations.
func WithForeignAdditions(job *batchv1.Job, original *corev1.PodTemplateSpec) *batchv1.Job {
	after := job.DeepCopy()
	template := &after.Spec.Template
	var added additions
	if original == nil {
		original = template
	}
	original = original.DeepCopy()
	for _, key := range []string{apis.PodSetLabel, apis.ClusterQueueLabel, apis.LocalQueueLabel} {
		delete(original.Labels, key)
	}
	original.Spec.SchedulingGates = slices.DeleteFunc(original.Spec.SchedulingGates, isElasticGate)
	added.Labels = addedKeys(template.Labels, original.Labels)
	// The Job controller has added its own labels, which original may lack.
	added.Labels = slices.DeleteFunc(added.Labels, func(key string) bool { return isOfController(key) || selects(job.Spec.Selector, key) })
	added.Annotations = addedKeys(template.Annotations, original.Annotations)
	added.nodeLabels = addedKeys(template.Spec.NodeSelector, original.Spec.NodeSelector)
	for _, t := range template.Spec.Tolerations {
		if !hasToleration(original.Spec.Tolerations, t) {
			added.Tolerations = append(added.Tolerations, t)
		}
	}
	for _, g := range template.Spec.SchedulingGates {
		if !slices.Contains(original.Spec.SchedulingGates, g) {
			added.Gates = append(added.Gates, g.Name)
		}
	}
	if added.note(after) != nil {
		return job
	}
	return after
}

func isElasticGate(gate corev1.PodSchedulingGate) bool {
	return gate.Name == kueue.ElasticJobSchedulingGate
}

func isOfController(key string) bool {
	return key == "controller-uid" || key == "job-name" || strings.HasPrefix(key, "batch.kubernetes.io/")
}

// addedKeys returns, sorted, the keys of a map that another one does not have.
func addedKeys(now, before map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(key string) bool {
		_, known := before[key]
		return known
	})
}

// selects reports whether a selector asks for a label. The API server accepts no pod template without such a label, so no admission added it.
func selects(selector *metav1.LabelSelector, key string) bool {
	if selector == nil {
		return false
	}
	_, asks := selector.MatchLabels[key]
	return asks || slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key })
}

// IsRestored reports whether a Job contains no addition of an admission.
func IsRestored(job *batchv1.Job) bool {
	_, labels := job.Annotations[apis.FlavorNodeLabelsAnnotation]
	_, others := job.Annotations[apis.AdmissionAdditionsAnnotation]
	return !labels && !others
}

// Additions are what an admission has added to the pod template of a Job.
type additions struct {
	Labels      []string            `json:"labels,omitempty"`
	Annotations []string            `json:"annotations,omitempty"`
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	Gates       []string            `json:"schedulingGates,omitempty"`
	// nodeLabels are recorded in an annotation of their own.
	nodeLabels []string
}

// addMap adds entries and returns, sorted, the keys that did not exist before.
func addMap(to *map[string]string, entries map[string]string) []string {
	var added []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if *to == nil {
			*to = map[string]string{}
		}
		if _, known := (*to)[key]; !known {
			added = append(added, key)
		}
		(*to)[key] = entries[key]
	}
	return added
}

func (a *additions) addTolerations(pod *corev1.PodSpec, tolerations []corev1.Toleration) {
	for _, toleration := range tolerations {
		if !hasToleration(pod.Tolerations, toleration) {
			pod.Tolerations = append(pod.Tolerations, toleration)
			a.Tolerations = append(a.Tolerations, toleration)
		}
	}
}

func (a *additions) addGates(pod *corev1.PodSpec, gates []string) {
	for _, gate := range gates {
		if !slices.Contains(pod.SchedulingGates, corev1.PodSchedulingGate{Name: gate}) {
			pod.SchedulingGates = append(pod.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
			a.Gates = append(a.Gates, gate)
		}
	}
}

func hasToleration(all []corev1.Toleration, one corev1.Toleration) bool {
	return slices.ContainsFunc(all, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, one) })
}

// merge adds what an update requests.
func (a *additions) merge(template *corev1.PodTemplateSpec, update *kueue.PodSetUpdate) error {
	for _, part := range []struct {
		name      string
		has, asks map[string]string
	}{
		{"labels", template.Labels, update.Labels},
		{"annotations", template.Annotations, update.Annotations},
		{"nodeSelector", template.Spec.NodeSelector, update.NodeSelector},
	} {
		for _, key := range slices.Sorted(maps.Keys(part.asks)) {
			if value, known := part.has[key]; known && value != part.asks[key] {
				return fmt.Errorf("set %s[%q] to %q, which is %q already; make them equal", part.name, key, part.asks[key], value)
			}
		}
	}
	a.Labels = append(a.Labels, addMap(&template.Labels, update.Labels)...)
	a.Annotations = append(a.Annotations, addMap(&template.Annotations, update.Annotations)...)
	a.nodeLabels = append(a.nodeLabels, addMap(&template.Spec.NodeSelector, update.NodeSelector)...)
	a.addTolerations(&template.Spec, update.Tolerations)
	return nil
}

// takeBack removes the additions from a pod template.
func (a *additions) takeBack(template *corev1.PodTemplateSpec) {
	for _, key := range a.Labels {
		delete(template.Labels, key)
	}
	for _, key := range a.Annotations {
		delete(template.Annotations, key)
	}
	template.Spec.Tolerations = slices.DeleteFunc(template.Spec.Tolerations, func(t corev1.Toleration) bool { return hasToleration(a.Tolerations, t) })
	template.Spec.SchedulingGates = slices.DeleteFunc(template.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return slices.Contains(a.Gates, g.Name) })
}

// note records the additions in annotations of the Job.
func (a *additions) note(job *batchv1.Job) error {
	if len(a.nodeLabels) > 0 {
		slices.Sort(a.nodeLabels)
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, apis.FlavorNodeLabelsAnnotation, strings.Join(a.nodeLabels, ","))
	}
	if len(a.Labels)+len(a.Annotations)+len(a.Tolerations)+len(a.Gates) == 0 {
		return nil
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("note what was added to Job %q: %w", job.Name, err)
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, apis.AdmissionAdditionsAnnotation, string(data))
	return nil
}

// matches compares a Job with the template that quota was charged for.
func matches(job *batchv1.Job, template Template) error {
	if pods := PodsAtOnce(job); pods > template.Pods {
		return fmt.Errorf("the Job %q stays held: it can have %d pods at once, and quota is charged for %d; delete the Job", job.Name, pods, template.Pods)
	}
	for name, quantity := range stageplan.PodRequests(&job.Spec.Template.Spec) {
		charged := template.Requests[name]
		if quantity.Cmp(charged) > 0 {
			return fmt.Errorf("the Job %q stays held: its pods request %s %s each, and quota is charged for %s; delete the Job", job.Name, quantity.String(), name, charged.String())
		}
	}
	return nil
}

// directives returns the node labels and tolerations of the flavors of an assignment, in a fixed order.
func directives(assignment *kueue.PodSetAssignment, flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor) (map[string]string, []corev1.Toleration, error) {
	labels := map[string]string{}
	var tolerations []corev1.Toleration
	for _, name := range slices.Compact(slices.Sorted(maps.Values(assignment.Flavors))) {
		flavor := flavors[name]
		if flavor == nil {
			return nil, nil, fmt.Errorf("there is no ResourceFlavor %q, which it was admitted to; create it", name)
		}
		maps.Copy(labels, flavor.Spec.NodeLabels)
		tolerations = append(tolerations, flavor.Spec.Tolerations...)
	}
	return labels, tolerations, nil
}
