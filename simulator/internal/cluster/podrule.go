package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
)

// PutLimitRange writes a LimitRange.
func (cl *Cluster) PutLimitRange(object *corev1.LimitRange) {
	write(cl, cl.LimitRanges, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, object, limitRangeObserved)
}

// PutRuntimeClass writes a RuntimeClass.
func (cl *Cluster) PutRuntimeClass(object *nodev1.RuntimeClass) {
	write(cl, cl.RuntimeClasses, object.Name, object, runtimeClassObserved)
}

// PutDeviceClass writes a DeviceClass.
func (cl *Cluster) PutDeviceClass(object *resourcev1.DeviceClass) {
	write(cl, cl.DeviceClasses, object.Name, object, deviceClassObserved)
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
