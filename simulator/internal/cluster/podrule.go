package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/admission"
)

// LimitRangeObserved returns the observation of a LimitRange.
func LimitRangeObserved(o *corev1.LimitRange) admission.Event {
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

// RuntimeClassObserved returns the observation of a RuntimeClass.
func RuntimeClassObserved(o *nodev1.RuntimeClass) admission.Event {
	observed := admission.RuntimeClassObserved{Name: o.Name}
	if o.Overhead != nil {
		observed.Overhead = o.Overhead.PodFixed.DeepCopy()
	}
	return observed
}

// DeviceClassObserved returns the observation of a DeviceClass.
func DeviceClassObserved(o *resourcev1.DeviceClass) admission.Event {
	return admission.DeviceClassObserved{DeviceClass: o.DeepCopy()}
}
