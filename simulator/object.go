package simulator

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// declare creates an object.
func (s *simulation) declare(d scenario.Declare) error {
	namespace := d.Fields.Get("namespace", metav1.NamespaceDefault)
	if s.exists(d.Kind, types.NamespacedName{Namespace: namespace, Name: d.Name}) {
		return fmt.Errorf("%s %s exists already: write change %[1]s %[2]s", d.Kind, d.Name)
	}
	if d.Kind == scenario.Queue {
		if d.Fields.HasDefaultFlavor() && s.objects.flavors[scenario.DefaultFlavor] == nil {
			s.putFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: scenario.DefaultFlavor}})
		}
		if namespace != scenario.NoNamespace {
			s.putLocalQueue(&kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(d.Name)},
			})
		}
	}
	return s.apply(d.Kind, types.NamespacedName{Namespace: namespace, Name: d.Name}, d.Fields)
}

// change replaces fields of an object.
func (s *simulation) change(c scenario.Change) error {
	key := types.NamespacedName{Namespace: c.Fields.Get("namespace", metav1.NamespaceDefault), Name: c.Name}
	if !s.exists(c.Kind, key) {
		return fmt.Errorf("there is no %s %s: declare it first", c.Kind, c.Name)
	}
	if c.Kind == scenario.Queue && c.Fields.HasDefaultFlavor() && s.objects.flavors[scenario.DefaultFlavor] == nil {
		return errors.New("the quota names no flavor, but those of this queue have names: write FLAVOR:RESOURCE=AMOUNT")
	}
	return s.apply(c.Kind, key, c.Fields)
}

func (s *simulation) exists(kind scenario.Kind, key types.NamespacedName) bool {
	o := s.objects
	var ok bool
	switch kind {
	case scenario.Namespace:
		_, ok = o.namespaces[key.Name]
	case scenario.Flavor:
		_, ok = o.flavors[key.Name]
	case scenario.Cohort:
		_, ok = o.cohorts[key.Name]
	case scenario.Queue:
		_, ok = o.clusterQueues[key.Name]
	case scenario.LocalQueue:
		_, ok = o.localQueues[key]
	case scenario.AdmissionCheck:
		_, ok = o.checks[key.Name]
	case scenario.PriorityClass:
		_, ok = o.classes[key.Name]
	case scenario.LimitRange:
		_, ok = o.limitRanges[key]
	case scenario.RuntimeClass:
		_, ok = o.runtimeClasses[key.Name]
	case scenario.DeviceClass:
		_, ok = o.deviceClasses[key.Name]
	}
	return ok
}

// apply applies the fields to an existing object, or to an empty one.
func (s *simulation) apply(kind scenario.Kind, key types.NamespacedName, fields scenario.Fields) error {
	meta := metav1.ObjectMeta{Name: key.Name}
	o := s.objects
	switch kind {
	case scenario.Namespace:
		labels := o.namespaces[key.Name]
		return then(fields.ApplyNamespace(&labels), func() { s.putNamespace(key.Name, labels) })
	case scenario.Flavor:
		object := copyOr(o.flavors[key.Name], &kueue.ResourceFlavor{ObjectMeta: meta})
		return then(fields.ApplyFlavor(object), func() { s.putFlavor(object) })
	case scenario.Cohort:
		object := copyOr(o.cohorts[key.Name], &kueue.Cohort{ObjectMeta: meta})
		return then(fields.ApplyCohort(object), func() { s.putCohort(object) })
	case scenario.Queue:
		object := copyOr(o.clusterQueues[key.Name], &kueue.ClusterQueue{ObjectMeta: meta, Spec: kueue.ClusterQueueSpec{
			QueueingStrategy: kueue.BestEffortFIFO, NamespaceSelector: &metav1.LabelSelector{},
		}})
		return then(fields.ApplyClusterQueue(object), func() { s.putClusterQueue(object) })
	case scenario.LocalQueue:
		meta.Namespace = key.Namespace
		object := copyOr(o.localQueues[key], &kueue.LocalQueue{ObjectMeta: meta})
		return then(fields.ApplyLocalQueue(object), func() { s.putLocalQueue(object) })
	case scenario.AdmissionCheck:
		object := copyOr(o.checks[key.Name], &kueue.AdmissionCheck{ObjectMeta: meta})
		if len(object.Status.Conditions) == 0 {
			fields = append(scenario.Fields{{Key: "active", Value: "true"}}, fields...)
		}
		return then(fields.ApplyAdmissionCheck(object), func() { s.putAdmissionCheck(object) })
	case scenario.PriorityClass:
		object := copyOr(o.classes[key.Name], &kueue.WorkloadPriorityClass{ObjectMeta: meta})
		return then(fields.ApplyPriorityClass(object), func() { o.classes[key.Name] = object })
	case scenario.LimitRange, scenario.RuntimeClass, scenario.DeviceClass:
		return s.applyPodRule(kind, key, fields)
	}
	return nil
}

// copyOr copies an existing object, or else returns the new one.
func copyOr[T interface {
	comparable
	DeepCopy() T
}](object, otherwise T) T {
	var none T
	if object == none {
		return otherwise
	}
	return object.DeepCopy()
}

func then(err error, f func()) error {
	if err == nil {
		f()
	}
	return err
}

// needNamespace creates a Namespace that the scenario does not declare.
func (s *simulation) needNamespace(name string) {
	if _, ok := s.objects.namespaces[name]; !ok {
		s.putNamespace(name, nil)
	}
}

func (s *simulation) putNamespace(name string, labels map[string]string) {
	s.objects.namespaces[name] = labels
	s.observe(admission.NamespaceObserved{Name: name, Labels: labels})
}

func (s *simulation) putFlavor(object *kueue.ResourceFlavor) {
	s.objects.stamp(object, s.time())
	s.objects.flavors[object.Name] = object
	s.observe(admission.FlavorObserved{Flavor: object.DeepCopy()})
}

func (s *simulation) putAdmissionCheck(object *kueue.AdmissionCheck) {
	s.objects.stamp(object, s.time())
	s.objects.checks[object.Name] = object
	s.observe(admission.CheckObserved{AdmissionCheck: object.DeepCopy()})
}

func (s *simulation) putCohort(object *kueue.Cohort) {
	s.objects.stamp(object, s.time())
	s.objects.cohorts[object.Name] = object
	s.observe(admission.CohortObserved{Cohort: object.DeepCopy()})
}

func (s *simulation) putClusterQueue(object *kueue.ClusterQueue) {
	s.objects.stamp(object, s.time())
	s.objects.clusterQueues[object.Name] = object
	s.workQueue.addAll(s.objects)
	s.observe(admission.ClusterQueueObserved{ClusterQueue: object.DeepCopy()})
}

func (s *simulation) putLocalQueue(object *kueue.LocalQueue) {
	s.needNamespace(object.Namespace)
	s.objects.stamp(object, s.time())
	s.objects.localQueues[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = object
	s.workQueue.addAll(s.objects)
	s.observe(admission.LocalQueueObserved{LocalQueue: object.DeepCopy()})
}

// remove deletes an object.
func (s *simulation) remove(r scenario.Remove) error {
	key := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: r.Name}
	if !s.exists(r.Kind, key) {
		return fmt.Errorf("there is no %s %s", r.Kind, r.Name)
	}
	o := s.objects
	switch r.Kind {
	case scenario.Namespace:
		delete(o.namespaces, r.Name)
		s.observe(admission.NamespaceGone{Name: r.Name})
	case scenario.Flavor:
		delete(o.flavors, r.Name)
		s.observe(admission.FlavorGone{Name: r.Name})
	case scenario.Cohort:
		delete(o.cohorts, r.Name)
		s.observe(admission.CohortGone{Name: r.Name})
	case scenario.Queue:
		delete(o.clusterQueues, r.Name)
		s.observe(admission.ClusterQueueGone{Name: r.Name})
	case scenario.LocalQueue:
		delete(o.localQueues, key)
		s.observe(admission.LocalQueueGone{Key: key})
	case scenario.AdmissionCheck:
		delete(o.checks, r.Name)
		s.observe(admission.CheckGone{Name: r.Name})
	case scenario.PriorityClass:
		delete(o.classes, r.Name)
	case scenario.LimitRange, scenario.RuntimeClass, scenario.DeviceClass:
		s.removePodRule(r.Kind, key)
	}
	return nil
}
