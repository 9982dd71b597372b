package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Change is what differs between a snapshot and the snapshot after it.
type Change struct {
	// Objects are those that the manifests have or that are deleted, in the order of kinds, namespaces and names.
	Objects []ObjectChange `json:"objects"`
	// Ignored are the objects of the manifests that are not applied, with the reason.
	Ignored []string `json:"ignored,omitempty"`

	before, after *snapshot.Snapshot
	// failures are the quota Workloads whose pods fail at the time of the change.
	failures []admission.StageKey
}

// An ObjectChange is what happens to one object.
type ObjectChange struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Action    Action `json:"action"`
	// Fields are those that differ, if the object is updated, or those of a new object.
	Fields []Field `json:"fields,omitempty"`
}

// String returns the kind and the name.
func (o *ObjectChange) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// An Action is what happens to an object.
type Action string

const (
	// Create creates an object.
	Create Action = "Create"
	// Update changes fields of an object.
	Update Action = "Update"
	// Delete deletes an object.
	Delete Action = "Delete"
	// Unchanged changes nothing.
	Unchanged Action = "Unchanged"
)

// Apply returns the change that applying manifests to a snapshot makes. If prune is true, it also deletes the queues, Cohorts, ResourceFlavors,
// AdmissionChecks and WorkloadPriorityClasses that the manifests do not have. The error names the object, the field and the cure.
func Apply(s, manifests *snapshot.Snapshot, prune Prune) (*Change, error) {
	c := &Change{before: s, after: s.Clone()}
	for _, skipped := range manifests.Skipped {
		c.Ignored = append(c.Ignored, skipped+": its kind does not decide admission")
	}
	for _, creator := range manifests.Creators {
		c.Ignored = append(c.Ignored, creator+": the Jobs or pods that it creates are not simulated; if they have a queue name, they wait for quota, too")
	}
	if err := c.configure(manifests.Configuration); err != nil {
		return nil, err
	}
	for _, kind := range snapshot.Kinds() {
		for object := range manifests.Objects(kind) {
			if reason := c.reasonToIgnore(kind, object); reason != "" {
				c.Ignored = append(c.Ignored, fmt.Sprintf("%s %s: %s", kind.GVK.Kind, nameOf(object), reason))
				continue
			}
			if err := c.put(kind, object); err != nil {
				return nil, fmt.Errorf("%s %s: %w", kind.GVK.Kind, nameOf(object), err)
			}
		}
		if prune == Pruned && isPrunable(kind) {
			c.prune(kind, manifests)
		}
	}
	c.followPriorities()
	return c, nil
}

// Prune is what happens to objects that the manifests do not have.
type Prune string

const (
	// Kept leaves them as they are.
	Kept Prune = "Kept"
	// Pruned deletes those that make up queues.
	Pruned Prune = "Pruned"
)

// After returns the snapshot with the change.
func (c *Change) After() *snapshot.Snapshot { return c.after }

// IsEmpty reports whether no object changes.
func (c *Change) IsEmpty() bool {
	return !slices.ContainsFunc(c.Objects, func(o ObjectChange) bool { return o.Action != Unchanged })
}

// reasonToIgnore returns why an object is not applied. It returns nothing for one that is applied.
func (c *Change) reasonToIgnore(kind *snapshot.Kind, object snapshot.Object) string {
	if job, is := object.(*batchv1.Job); is {
		return c.notQueued(job)
	}
	if pod, is := object.(*corev1.Pod); is && metav1.GetControllerOf(pod) == nil {
		return "single pods are not simulated; if it has a queue name, it waits for quota, too"
	}
	if slices.Contains([]string{"Node", "Pod", "Workload"}, kind.GVK.Kind) {
		return "controllers and kubelets write objects of this kind"
	}
	return ""
}

func isPrunable(kind *snapshot.Kind) bool {
	return slices.Contains([]string{"ResourceFlavor", "AdmissionCheck", "WorkloadPriorityClass", "Cohort", "ClusterQueue", "LocalQueue"}, kind.GVK.Kind)
}

// configure replaces the configuration of the manager.
func (c *Change) configure(config *configapi.Configuration) error {
	if config == nil {
		return nil
	}
	before := &configapi.Configuration{}
	if c.before.Configuration != nil {
		before = c.before.Configuration.DeepCopy()
	}
	after := config.DeepCopy()
	before.SetDefaults()
	after.SetDefaults()
	fields, err := fieldsOf(snapshot.ReduceConfiguration(before), snapshot.ReduceConfiguration(after))
	if err != nil {
		return err
	}
	c.after.Configuration = config
	c.add(ObjectChange{Kind: configapi.Kind, Name: "of the manager", Action: Update, Fields: fields})
	return nil
}

func (c *Change) add(o ObjectChange) {
	if o.Action == Update && len(o.Fields) == 0 {
		o.Action = Unchanged
	}
	c.Objects = append(c.Objects, o)
}

// put applies one object.
func (c *Change) put(kind *snapshot.Kind, manifest snapshot.Object) error {
	after := kind.Reduce(copyOf(manifest))
	before := c.after.Find(kind, after)
	change := ObjectChange{Kind: kind.GVK.Kind, Namespace: after.GetNamespace(), Name: after.GetName(), Action: Update}
	if before == nil {
		change.Action = Create
		if err := c.create(after); err != nil {
			return err
		}
	} else {
		merged, err := merge(kind, before, after)
		if err != nil {
			return err
		}
		after = merged
	}
	old := kind.Reduce(snapshot.NewObject(kind))
	if before != nil {
		old = kind.Reduce(copyOf(before))
		setDefaults(old)
	}
	compared := kind.Reduce(copyOf(after))
	setDefaults(compared)
	var err error
	if change.Fields, err = fieldsOf(old, compared); err != nil {
		return err
	}
	if before != nil {
		if err := refuseImmutable(kind, change.Fields); err != nil {
			return err
		}
		if err := markUnnamed(change.Fields, kind, manifest); err != nil {
			return err
		}
	}
	if before == nil || len(change.Fields) > 0 {
		c.after.Put(kind, after)
	}
	c.add(change)
	return nil
}

// create completes an object that the API server and controllers would complete.
func (c *Change) create(object snapshot.Object) error {
	isOf := func(n *corev1.Namespace) bool { return n.Name == object.GetNamespace() }
	if object.GetNamespace() != "" && len(c.after.Namespaces) > 0 && !slices.ContainsFunc(c.after.Namespaces, isOf) {
		return fmt.Errorf("there is no Namespace %s: create it, or add it to the manifests", object.GetNamespace())
	}
	object.SetUID(types.UID(fmt.Sprintf("planned/%s/%s/%s", object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName())))
	object.SetCreationTimestamp(metav1.NewTime(c.before.TakenAt))
	object.SetGeneration(1)
	object.SetResourceVersion("")
	object.SetDeletionTimestamp(nil)
	switch object := object.(type) {
	case *kueue.AdmissionCheck:
		// The controller of the check reports that it is active.
		object.Status = kueue.AdmissionCheckStatus{}
		apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
			Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.NewTime(c.before.TakenAt),
		})
	case *jobSet:
		return c.submit(object)
	case *batchv1.Job:
		submitJob(object)
	}
	return nil
}

// prune deletes the objects of a kind that the manifests do not have. An object that is in use stays until it is not, without new admissions.
func (c *Change) prune(kind *snapshot.Kind, manifests *snapshot.Snapshot) {
	for object := range c.before.Objects(kind) {
		if manifests.Find(kind, object) != nil {
			continue
		}
		c.add(ObjectChange{Kind: kind.GVK.Kind, Namespace: object.GetNamespace(), Name: object.GetName(), Action: Delete})
		if !slices.Contains(object.GetFinalizers(), kueue.ResourceInUseFinalizerName) {
			c.after.Remove(kind, object)
			continue
		}
		deleted := copyOf(object)
		deleted.SetDeletionTimestamp(new(metav1.NewTime(c.before.TakenAt)))
		c.after.Put(kind, deleted)
	}
}

// followPriorities lets the quota Workloads that belong to no JobSet follow the values of their WorkloadPriorityClasses, as the manager does. Those of
// JobSets follow in the simulation.
func (c *Change) followPriorities() {
	changed := map[string]int32{}
	for _, o := range c.Objects {
		if o.Kind == "WorkloadPriorityClass" && o.Action == Update {
			i := slices.IndexFunc(c.after.PriorityClasses, func(class *kueue.WorkloadPriorityClass) bool { return class.Name == o.Name })
			changed[o.Name] = c.after.PriorityClasses[i].Value
		}
	}
	for i, w := range c.after.Workloads {
		ref := w.Spec.PriorityClassRef
		if ref == nil || ref.Kind != kueue.WorkloadPriorityClassKind || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		if value, isChanged := changed[ref.Name]; isChanged {
			w = w.DeepCopy()
			w.Spec.Priority = &value
			c.after.Workloads[i] = w
		}
	}
}

// merge returns an object as it is after a manifest was applied. Fields that the API server and controllers write stay. Labels and annotations are
// added, because a snapshot does not show which of them came from manifests; those of Tranche that only users write are replaced.
func merge(kind *snapshot.Kind, before, manifest snapshot.Object) (snapshot.Object, error) {
	switch manifest := manifest.(type) {
	case *jobSet:
		return mergeJobSet(before.(*jobSet), manifest) //nolint:forcetypeassert // objects of one kind
	case *batchv1.Job:
		return mergeJob(before.(*batchv1.Job), manifest) //nolint:forcetypeassert // objects of one kind
	}
	old, err := tree(before)
	if err != nil {
		return nil, err
	}
	now, err := tree(manifest)
	if err != nil {
		return nil, err
	}
	delete(now, "status")
	if status, has := old["status"]; has {
		now["status"] = status
	}
	content, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	merged := snapshot.NewObject(kind)
	if err := json.Unmarshal(content, merged); err != nil {
		return nil, err
	}
	keepMetadata(before, merged)
	return merged, nil
}

// keepMetadata restores the metadata that manifests do not determine.
func keepMetadata(before, merged snapshot.Object) {
	labels, annotations := maps.Clone(before.GetLabels()), maps.Clone(before.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "tranche.dev/") })
	merged.SetLabels(union(labels, merged.GetLabels()))
	merged.SetAnnotations(union(annotations, merged.GetAnnotations()))
	merged.SetUID(before.GetUID())
	merged.SetResourceVersion(before.GetResourceVersion())
	merged.SetGeneration(before.GetGeneration() + 1)
	merged.SetCreationTimestamp(before.GetCreationTimestamp())
	merged.SetDeletionTimestamp(before.GetDeletionTimestamp())
	merged.SetFinalizers(before.GetFinalizers())
	merged.SetOwnerReferences(before.GetOwnerReferences())
}

func union(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// refuseImmutable returns an error if the API server would refuse an update.
func refuseImmutable(kind *snapshot.Kind, fields []Field) error {
	fixed := map[string]string{"LocalQueue": "spec.clusterQueue", "AdmissionCheck": "spec.controllerName"}[kind.GVK.Kind]
	for _, field := range fields {
		if fixed != "" && field.Path == fixed {
			return fmt.Errorf("%s is immutable, and is %s instead of %s: delete the %s and create it again", fixed, cmp.Or(field.After, "absent"),
				cmp.Or(field.Before, "absent"), kind.GVK.Kind)
		}
	}
	if kind.GVK.Kind != "JobSet" {
		return nil
	}
	return refuseFields(fields, isMutable)
}

// refuseFields returns an error about the fields of a spec that may not change.
func refuseFields(fields []Field, isMutable func(path string) bool) error {
	var problems []error
	for _, field := range fields {
		if strings.HasPrefix(field.Path, "spec.") && !isMutable(field.Path) {
			problems = append(problems, fmt.Errorf("%s is immutable, and is %s instead of %s: submit it with another name, or delete this one first",
				field.Path, cmp.Or(field.After, "absent"), cmp.Or(field.Before, "absent")))
		}
	}
	return errors.Join(problems...)
}

func nameOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

func copyOf(object snapshot.Object) snapshot.Object {
	return object.DeepCopyObject().(snapshot.Object) //nolint:forcetypeassert // a copy has the same type
}

// Submit returns the change that submitting JobSets and Jobs makes. The error names the object, the field and the cure.
func Submit(s, manifests *snapshot.Snapshot) (*Change, error) {
	if len(manifests.JobSets)+len(manifests.Jobs) == 0 {
		return nil, errors.New("the manifests have no JobSet and no Job: name a file with one; the start of single pods, and of what CronJobs, Deployments and the like " +
			"create, is not predicted")
	}
	c, err := Apply(s, manifests, Kept)
	if err != nil {
		return nil, err
	}
	for _, job := range manifests.Jobs {
		if reason := c.notQueued(job); reason != "" {
			return nil, fmt.Errorf("%s %s: %s", jobKind, nameOf(job), reason)
		}
	}
	for i := range c.Objects {
		if o := &c.Objects[i]; (o.Kind == "JobSet" || o.Kind == jobKind) && o.Action != Create {
			return nil, fmt.Errorf("%s exists in the snapshot: give it another metadata.name, or ask tranche plan what updating it changes", o)
		}
	}
	return c, nil
}
