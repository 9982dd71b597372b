package device

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// Extended has, for each extended resource that a mapped DeviceClass serves, the quota resource that is charged instead.
type Extended map[corev1.ResourceName]corev1.ResourceName

// Extended returns what is charged for the extended resources of DeviceClasses. If several name the same extended resource the scheduler uses the
// one that was created last, and of those created at the same time the one whose name comes first. An extended resource of a DeviceClass without
// a mapping is charged under its own name.
func (m Mapping) Extended(classes []*resourcev1.DeviceClass) Extended {
	serving := map[corev1.ResourceName]*resourcev1.DeviceClass{}
	for _, class := range classes {
		name := corev1.ResourceName(ptr.Deref(class.Spec.ExtendedResourceName, ""))
		if known := serving[name]; name != "" && (known == nil || comesBefore(class, known)) {
			serving[name] = class
		}
	}
	charged := Extended{}
	for name, class := range serving {
		if of, isMapped := m[class.Name]; isMapped && of != name {
			charged[name] = of
		}
	}
	return charged
}

func comesBefore(class, other *resourcev1.DeviceClass) bool {
	if order := class.CreationTimestamp.Compare(other.CreationTimestamp.Time); order != 0 {
		return order > 0
	}
	return class.Name < other.Name
}

// Replace returns the charges of a pod, given the charges that other rules have derived from its requests. Amounts of extended resources that
// devices serve are charged to the resource of the mapping, regardless of the other rules.
func (x Extended) Replace(requests, charged corev1.ResourceList) corev1.ResourceList {
	var replaced corev1.ResourceList
	for name := range x {
		amount, isRequested := requests[name]
		if !isRequested || amount.Sign() <= 0 {
			continue
		}
		if replaced == nil {
			replaced = maps.Clone(charged)
		}
		delete(replaced, name)
	}
	if replaced == nil {
		return charged
	}
	for name, of := range x {
		if amount, isRequested := requests[name]; isRequested && amount.Sign() > 0 {
			sum := replaced[of].DeepCopy()
			sum.Add(amount)
			replaced[of] = sum
		}
	}
	return replaced
}
