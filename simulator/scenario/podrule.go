package scenario

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

func limitRangeOptions(o *corev1.LimitRange) []Option {
	if len(o.Spec.Limits) == 0 {
		o.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer}}
	}
	limit := &o.Spec.Limits[0]
	list := func(key, text string, target *corev1.ResourceList) Option {
		return Option{key, "RESOURCE:AMOUNT,...", text, into(target, amountsWithColon)}
	}
	return []Option{
		namespace(&o.Namespace),
		choice("type", "Container|Pod", "What it limits; Container if left out.", func(v corev1.LimitType) { limit.Type = v }),
		list("max", "The most that one may ask for.", &limit.Max),
		list("min", "The least that one may ask for.", &limit.Min),
		list("ratio", "The most that a limit may be, in requests (maxLimitRequestRatio).", &limit.MaxLimitRequestRatio),
		list("limit", "The limit of a container that has none; the maximum if left out.", &limit.Default),
		list("request", "The request of a container that has neither; the limit or the minimum if left out.", &limit.DefaultRequest),
	}
}

func runtimeClassOptions(o *nodev1.RuntimeClass) []Option {
	return []Option{
		{"overhead", "RESOURCE:AMOUNT,...", "What each of its pods costs beside its containers.", then(amountsWithColon, func(v corev1.ResourceList) {
			o.Overhead = &nodev1.Overhead{PodFixed: v}
		})},
	}
}

func deviceClassOptions(o *resourcev1.DeviceClass) []Option {
	return []Option{
		{"extended", "RESOURCE", "The extended resource that its devices serve (extendedResourceName).", then(resourceName, func(v corev1.ResourceName) {
			o.Spec.ExtendedResourceName = new(string(v))
		})},
	}
}
