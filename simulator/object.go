package simulator

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/initial"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// declare creates an object.
func (s *simulation) declare(d scenario.Declare) error {
	namespace := d.Fields.Get("namespace", metav1.NamespaceDefault)
	object := s.object(d.Kind, types.NamespacedName{Namespace: namespace, Name: d.Name})
	if object.exists() {
		return fmt.Errorf("%s %s exists already: write change %[1]s %[2]s", d.Kind, d.Name)
	}
	if d.Kind == scenario.Queue {
		if d.Fields.HasDefaultFlavor() && s.Flavors[scenario.DefaultFlavor] == nil {
			s.PutFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: scenario.DefaultFlavor}})
		}
		if namespace != scenario.NoNamespace {
			s.PutLocalQueue(&kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(d.Name)},
			})
		}
	}
	return object.apply(d.Fields)
}

// change replaces fields of an object.
func (s *simulation) change(c scenario.Change) error {
	object := s.object(c.Kind, types.NamespacedName{Namespace: c.Fields.Get("namespace", metav1.NamespaceDefault), Name: c.Name})
	if !object.exists() {
		return fmt.Errorf("%s %s does not exist: declare it first", c.Kind, c.Name)
	}
	if c.Kind == scenario.Queue && c.Fields.HasDefaultFlavor() && s.Flavors[scenario.DefaultFlavor] == nil {
		return errors.New("the quota names no flavor, but those of this queue have names: write FLAVOR:RESOURCE=AMOUNT")
	}
	return object.apply(c.Fields)
}

// remove deletes an object.
func (s *simulation) remove(r scenario.Remove) error {
	object := s.object(r.Kind, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: r.Name})
	if !object.exists() {
		return fmt.Errorf("%s %s does not exist", r.Kind, r.Name)
	}
	if gone := object.remove(); gone != nil {
		s.Observe(gone)
	}
	return nil
}

// An apiObject is the object of one kind and name in the API server, which may not exist yet.
type apiObject interface {
	exists() bool
	// apply applies the fields of a line to the object, and creates it if it does not exist.
	apply(fields scenario.Fields) error
	// remove deletes the object. It returns what the engine observes, or nil if the engine does not observe objects of this kind.
	remove() admission.Event
}

// object returns the object of this kind and name. Most kinds have no namespace.
func (s *simulation) object(kind scenario.Kind, key types.NamespacedName) apiObject {
	name := key.Name
	meta := metav1.ObjectMeta{Name: name}
	namespaced := metav1.ObjectMeta{Namespace: key.Namespace, Name: name}
	switch kind {
	case scenario.Namespace:
		return stored(s.Namespaces, name, &corev1.Namespace{ObjectMeta: meta}, s.PutNamespace, admission.NamespaceGone{Name: name})
	case scenario.Flavor:
		return stored(s.Flavors, name, &kueue.ResourceFlavor{ObjectMeta: meta}, s.PutFlavor, admission.FlavorGone{Name: name})
	case scenario.Cohort:
		return stored(s.Cohorts, name, &kueue.Cohort{ObjectMeta: meta}, s.PutCohort, admission.CohortGone{Name: name})
	case scenario.Queue:
		empty := &kueue.ClusterQueue{ObjectMeta: meta, Spec: kueue.ClusterQueueSpec{
			QueueingStrategy: kueue.BestEffortFIFO, NamespaceSelector: &metav1.LabelSelector{},
		}}
		return stored(s.ClusterQueues, name, empty, s.PutClusterQueue, admission.ClusterQueueGone{Name: name})
	case scenario.LocalQueue:
		return stored(s.LocalQueues, key, &kueue.LocalQueue{ObjectMeta: namespaced}, s.PutLocalQueue, admission.LocalQueueGone{Key: key})
	case scenario.AdmissionCheck:
		empty := &kueue.AdmissionCheck{ObjectMeta: meta, Status: initial.ActiveCheck()}
		return stored(s.AdmissionChecks, name, empty, s.PutAdmissionCheck, admission.CheckGone{Name: name})
	case scenario.PriorityClass:
		return stored(s.PriorityClasses, name, &kueue.WorkloadPriorityClass{ObjectMeta: meta}, s.PutPriorityClass, nil)
	case scenario.LimitRange:
		return stored(s.LimitRanges, key, &corev1.LimitRange{ObjectMeta: namespaced}, s.PutLimitRange, admission.LimitRangeGone{Key: key})
	case scenario.RuntimeClass:
		return stored(s.RuntimeClasses, name, &nodev1.RuntimeClass{ObjectMeta: meta}, s.PutRuntimeClass, admission.RuntimeClassGone{Name: name})
	case scenario.DeviceClass:
		return stored(s.DeviceClasses, name, &resourcev1.DeviceClass{ObjectMeta: meta}, s.PutDeviceClass, admission.DeviceClassGone{Name: name})
	}
	return nil
}

// A storedObject is an object in one of the maps of the cluster.
type storedObject[K comparable, T copyable[T]] struct {
	objects map[K]T
	key     K
	empty   T
	put     func(T)
	gone    admission.Event
}

type copyable[T any] interface {
	metav1.Object
	DeepCopy() T
}

// stored returns the object with this key. An object that does not exist is created from the empty one.
func stored[K comparable, T copyable[T]](objects map[K]T, key K, empty T, put func(T), gone admission.Event) apiObject {
	return storedObject[K, T]{objects, key, empty, put, gone}
}

func (o storedObject[K, T]) exists() bool {
	_, ok := o.objects[o.key]
	return ok
}

func (o storedObject[K, T]) apply(fields scenario.Fields) error {
	object := o.empty
	if existing, ok := o.objects[o.key]; ok {
		object = existing.DeepCopy()
	}
	if err := fields.Apply(object); err != nil {
		return err
	}
	o.put(object)
	return nil
}

func (o storedObject[K, T]) remove() admission.Event {
	delete(o.objects, o.key)
	return o.gone
}
