package simulator

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// applyPodRule applies the fields of objects by which the API server changes or rejects pods.
func (s *simulation) applyPodRule(kind scenario.Kind, key types.NamespacedName, fields scenario.Fields) error {
	meta := metav1.ObjectMeta{Name: key.Name}
	o := s.objects
	switch kind { //nolint:exhaustive // the others are for apply
	case scenario.LimitRange:
		meta.Namespace = key.Namespace
		object := copyOr(o.limitRanges[key], &corev1.LimitRange{ObjectMeta: meta})
		return then(fields.ApplyLimitRange(object), func() {
			o.stamp(object, s.time())
			o.limitRanges[key] = object
			s.observe(limitRangeObserved(object))
		})
	case scenario.RuntimeClass:
		object := copyOr(o.runtimeClasses[key.Name], &nodev1.RuntimeClass{ObjectMeta: meta})
		return then(fields.ApplyRuntimeClass(object), func() {
			o.stamp(object, s.time())
			o.runtimeClasses[key.Name] = object
			s.observe(runtimeClassObserved(object))
		})
	case scenario.DeviceClass:
		object := copyOr(o.deviceClasses[key.Name], &resourcev1.DeviceClass{ObjectMeta: meta})
		return then(fields.ApplyDeviceClass(object), func() {
			o.stamp(object, s.time())
			o.deviceClasses[key.Name] = object
			s.observe(deviceClassObserved(object))
		})
	}
	return nil
}

func (s *simulation) removePodRule(kind scenario.Kind, key types.NamespacedName) {
	switch kind { //nolint:exhaustive // the others are for remove
	case scenario.LimitRange:
		delete(s.objects.limitRanges, key)
		s.observe(admission.LimitRangeGone{Key: key})
	case scenario.RuntimeClass:
		delete(s.objects.runtimeClasses, key.Name)
		s.observe(admission.RuntimeClassGone{Name: key.Name})
	case scenario.DeviceClass:
		delete(s.objects.deviceClasses, key.Name)
		s.observe(admission.DeviceClassGone{Name: key.Name})
	}
}

func limitRangeObserved(o *corev1.LimitRange) admission.Event {
	object := o.DeepCopy()
	for i := range object.Spec.Limits {
		if item := &object.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			setDefaults(item)
		}
	}
	return admission.LimitRangeObserved{LimitRange: object}
}

// setDefaults defaults a LimitRange as the API server does: a maximum is the default limit, and that, or a minimum, the default request.
func setDefaults(item *corev1.LimitRangeItem) {
	limits := maps.Clone(item.Max)
	if limits == nil {
		limits = corev1.ResourceList{}
	}
	maps.Copy(limits, item.Default)
	requests := maps.Clone(item.Min)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	maps.Copy(requests, limits)
	maps.Copy(requests, item.DefaultRequest)
	item.Default, item.DefaultRequest = limits, requests
}

func runtimeClassObserved(o *nodev1.RuntimeClass) admission.Event {
	observed := admission.RuntimeClassObserved{Name: o.Name}
	if o.Overhead != nil {
		observed.Overhead = o.Overhead.PodFixed.DeepCopy()
	}
	return observed
}

func deviceClassObserved(o *resourcev1.DeviceClass) admission.Event {
	return admission.DeviceClassObserved{DeviceClass: o.DeepCopy()}
}
