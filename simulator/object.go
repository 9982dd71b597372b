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
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// declare creates an object.
func (s *simulation) declare(d scenario.Declare) error {
	namespace := d.Fields.Get("namespace", metav1.NamespaceDefault)
	if s.exists(d.Kind, types.NamespacedName{Namespace: namespace, Name: d.Name}) {
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
	return s.apply(d.Kind, types.NamespacedName{Namespace: namespace, Name: d.Name}, d.Fields)
}

// change replaces fields of an object.
func (s *simulation) change(c scenario.Change) error {
	key := types.NamespacedName{Namespace: c.Fields.Get("namespace", metav1.NamespaceDefault), Name: c.Name}
	if !s.exists(c.Kind, key) {
		return fmt.Errorf("%s %s does not exist: declare it first", c.Kind, c.Name)
	}
	if c.Kind == scenario.Queue && c.Fields.HasDefaultFlavor() && s.Flavors[scenario.DefaultFlavor] == nil {
		return errors.New("the quota names no flavor, but those of this queue have names: write FLAVOR:RESOURCE=AMOUNT")
	}
	return s.apply(c.Kind, key, c.Fields)
}

func (s *simulation) exists(kind scenario.Kind, key types.NamespacedName) bool {
	o := s.Cluster
	var ok bool
	switch kind {
	case scenario.Namespace:
		_, ok = o.Namespaces[key.Name]
	case scenario.Flavor:
		_, ok = o.Flavors[key.Name]
	case scenario.Cohort:
		_, ok = o.Cohorts[key.Name]
	case scenario.Queue:
		_, ok = o.ClusterQueues[key.Name]
	case scenario.LocalQueue:
		_, ok = o.LocalQueues[key]
	case scenario.AdmissionCheck:
		_, ok = o.AdmissionChecks[key.Name]
	case scenario.PriorityClass:
		_, ok = o.PriorityClasses[key.Name]
	case scenario.LimitRange:
		_, ok = o.LimitRanges[key]
	case scenario.RuntimeClass:
		_, ok = o.RuntimeClasses[key.Name]
	case scenario.DeviceClass:
		_, ok = o.DeviceClasses[key.Name]
	}
	return ok
}

// apply applies the fields to an existing object, or to an empty one.
func (s *simulation) apply(kind scenario.Kind, key types.NamespacedName, fields scenario.Fields) error {
	meta := metav1.ObjectMeta{Name: key.Name}
	o := s.Cluster
	switch kind {
	case scenario.Namespace:
		object := copyOr(o.Namespaces[key.Name], &corev1.Namespace{ObjectMeta: meta})
		return then(fields.Apply(object), func() { s.PutNamespace(object) })
	case scenario.Flavor:
		object := copyOr(o.Flavors[key.Name], &kueue.ResourceFlavor{ObjectMeta: meta})
		return then(fields.Apply(object), func() { s.PutFlavor(object) })
	case scenario.Cohort:
		object := copyOr(o.Cohorts[key.Name], &kueue.Cohort{ObjectMeta: meta})
		return then(fields.Apply(object), func() { s.PutCohort(object) })
	case scenario.Queue:
		object := copyOr(o.ClusterQueues[key.Name], &kueue.ClusterQueue{ObjectMeta: meta, Spec: kueue.ClusterQueueSpec{
			QueueingStrategy: kueue.BestEffortFIFO, NamespaceSelector: &metav1.LabelSelector{},
		}})
		return then(fields.Apply(object), func() { s.PutClusterQueue(object) })
	case scenario.LocalQueue:
		meta.Namespace = key.Namespace
		object := copyOr(o.LocalQueues[key], &kueue.LocalQueue{ObjectMeta: meta})
		return then(fields.Apply(object), func() { s.PutLocalQueue(object) })
	case scenario.AdmissionCheck:
		object := copyOr(o.AdmissionChecks[key.Name], &kueue.AdmissionCheck{ObjectMeta: meta})
		if len(object.Status.Conditions) == 0 {
			fields = append(scenario.Fields{{Key: "active", Value: "true"}}, fields...)
		}
		return then(fields.Apply(object), func() { s.PutAdmissionCheck(object) })
	case scenario.PriorityClass:
		object := copyOr(o.PriorityClasses[key.Name], &kueue.WorkloadPriorityClass{ObjectMeta: meta})
		return then(fields.Apply(object), func() { o.PriorityClasses[key.Name] = object })
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

// remove deletes an object.
func (s *simulation) remove(r scenario.Remove) error {
	key := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: r.Name}
	if !s.exists(r.Kind, key) {
		return fmt.Errorf("%s %s does not exist", r.Kind, r.Name)
	}
	o := s.Cluster
	switch r.Kind {
	case scenario.Namespace:
		delete(o.Namespaces, r.Name)
		s.Observe(admission.NamespaceGone{Name: r.Name})
	case scenario.Flavor:
		delete(o.Flavors, r.Name)
		s.Observe(admission.FlavorGone{Name: r.Name})
	case scenario.Cohort:
		delete(o.Cohorts, r.Name)
		s.Observe(admission.CohortGone{Name: r.Name})
	case scenario.Queue:
		delete(o.ClusterQueues, r.Name)
		s.Observe(admission.ClusterQueueGone{Name: r.Name})
	case scenario.LocalQueue:
		delete(o.LocalQueues, key)
		s.Observe(admission.LocalQueueGone{Key: key})
	case scenario.AdmissionCheck:
		delete(o.AdmissionChecks, r.Name)
		s.Observe(admission.CheckGone{Name: r.Name})
	case scenario.PriorityClass:
		delete(o.PriorityClasses, r.Name)
	case scenario.LimitRange, scenario.RuntimeClass, scenario.DeviceClass:
		s.removePodRule(r.Kind, key)
	}
	return nil
}

// applyPodRule applies the fields of objects by which the API server changes or rejects pods.
func (s *simulation) applyPodRule(kind scenario.Kind, key types.NamespacedName, fields scenario.Fields) error {
	meta := metav1.ObjectMeta{Name: key.Name}
	o := s.Cluster
	switch kind { //nolint:exhaustive // the others are for apply
	case scenario.LimitRange:
		meta.Namespace = key.Namespace
		object := copyOr(o.LimitRanges[key], &corev1.LimitRange{ObjectMeta: meta})
		return then(fields.Apply(object), func() {
			o.Stamp(object)
			o.LimitRanges[key] = object
			s.Observe(cluster.LimitRangeObserved(object))
		})
	case scenario.RuntimeClass:
		object := copyOr(o.RuntimeClasses[key.Name], &nodev1.RuntimeClass{ObjectMeta: meta})
		return then(fields.Apply(object), func() {
			o.Stamp(object)
			o.RuntimeClasses[key.Name] = object
			s.Observe(cluster.RuntimeClassObserved(object))
		})
	case scenario.DeviceClass:
		object := copyOr(o.DeviceClasses[key.Name], &resourcev1.DeviceClass{ObjectMeta: meta})
		return then(fields.Apply(object), func() {
			o.Stamp(object)
			o.DeviceClasses[key.Name] = object
			s.Observe(cluster.DeviceClassObserved(object))
		})
	}
	return nil
}

func (s *simulation) removePodRule(kind scenario.Kind, key types.NamespacedName) {
	switch kind { //nolint:exhaustive // the others are for remove
	case scenario.LimitRange:
		delete(s.LimitRanges, key)
		s.Observe(admission.LimitRangeGone{Key: key})
	case scenario.RuntimeClass:
		delete(s.RuntimeClasses, key.Name)
		s.Observe(admission.RuntimeClassGone{Name: key.Name})
	case scenario.DeviceClass:
		delete(s.DeviceClasses, key.Name)
		s.Observe(admission.DeviceClassGone{Name: key.Name})
	}
}
