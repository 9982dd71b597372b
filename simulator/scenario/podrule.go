package scenario

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// ApplyLimitRange does what the fields of a limitrange line say to a LimitRange.
func (f Fields) ApplyLimitRange(object *corev1.LimitRange) error {
	if len(object.Spec.Limits) == 0 {
		object.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer}}
	}
	return apply(object, f, limitRangeOptions())
}

// ApplyRuntimeClass does what the fields of a runtimeclass line say to a RuntimeClass.
func (f Fields) ApplyRuntimeClass(object *nodev1.RuntimeClass) error {
	return apply(object, f, runtimeClassOptions())
}

// ApplyDeviceClass does what the fields of a deviceclass line say to a DeviceClass.
func (f Fields) ApplyDeviceClass(object *resourcev1.DeviceClass) error {
	return apply(object, f, deviceClassOptions())
}

func limitRangeOptions() []option[corev1.LimitRange] {
	list := func(key, text string, of func(*corev1.LimitRangeItem) *corev1.ResourceList) option[corev1.LimitRange] {
		return option[corev1.LimitRange]{
			Option{key, "RESOURCE:AMOUNT,...", text},
			into(amountsWithColon, func(o *corev1.LimitRange, v corev1.ResourceList) { *of(&o.Spec.Limits[0]) = v }),
		}
	}
	return []option[corev1.LimitRange]{
		{
			Option{"namespace", "NAME", "Where it is; `default` if left out."},
			into(name, func(o *corev1.LimitRange, v string) { o.Namespace = v }),
		},
		{
			Option{"type", "Container|Pod", "What it limits; Container if left out."},
			into(among(corev1.LimitTypeContainer, corev1.LimitTypePod), func(o *corev1.LimitRange, v corev1.LimitType) { o.Spec.Limits[0].Type = v }),
		},
		list("max", "The most that one may ask for.", func(i *corev1.LimitRangeItem) *corev1.ResourceList { return &i.Max }),
		list("min", "The least that one may ask for.", func(i *corev1.LimitRangeItem) *corev1.ResourceList { return &i.Min }),
		list("ratio", "The most that a limit may be, in requests (maxLimitRequestRatio).", func(i *corev1.LimitRangeItem) *corev1.ResourceList { return &i.MaxLimitRequestRatio }),
		list("limit", "The limit of a container that has none; the maximum if left out.", func(i *corev1.LimitRangeItem) *corev1.ResourceList { return &i.Default }),
		list("request", "The request of a container that has neither; the limit or the minimum if left out.", func(i *corev1.LimitRangeItem) *corev1.ResourceList { return &i.DefaultRequest }),
	}
}

func runtimeClassOptions() []option[nodev1.RuntimeClass] {
	return []option[nodev1.RuntimeClass]{{
		Option{"overhead", "RESOURCE:AMOUNT,...", "What each of its pods costs beside its containers."},
		into(amountsWithColon, func(o *nodev1.RuntimeClass, v corev1.ResourceList) { o.Overhead = &nodev1.Overhead{PodFixed: v} }),
	}}
}

func deviceClassOptions() []option[resourcev1.DeviceClass] {
	return []option[resourcev1.DeviceClass]{{
		Option{"extended", "RESOURCE", "The extended resource that its devices serve (extendedResourceName)."},
		into(resourceName, func(o *resourcev1.DeviceClass, v corev1.ResourceName) { o.Spec.ExtendedResourceName = new(string(v)) }),
	}}
}
