// Package device charges the devices that pods claim (Dynamic Resource Allocation). Quota has no devices: each counts as one of the resource
// to which the configuration maps its DeviceClass.
//
//	spec.resourceClaims -> ResourceClaimTemplate -> 8 of DeviceClass gpu.example.com -> example.com/gpus: 8
//
// The pod template of a quota Workload that the manager creates carries the result as overhead, because overhead is what a pod costs beside its
// containers, and has no resource claims any longer. The engine does the same for the quota Workloads of other controllers, whose pod templates
// stay as they are.
package device

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/apis"
)

// A Mapping has the quota resource for the devices of each DeviceClass. If it is empty, no resource claim can be charged, whatever its
// ResourceClaimTemplate or ResourceClaim contains: then callers need not read these.
type Mapping map[string]corev1.ResourceName

// A Template is the relevant part of a ResourceClaimTemplate. Its spec does not change unless its UID does.
type Template struct {
	UID  types.UID
	Spec resourcev1.ResourceClaimSpec
}

// A Problem is a resource claim for which nothing can be charged.
type Problem struct {
	// Message names the claim and the fix.
	Message string
	// IsMissing is true if the ResourceClaimTemplate, or the ResourceClaim that Kubernetes creates from it, does not exist yet.
	IsMissing bool
	// Template is the name of the ResourceClaimTemplate if IsMissing is true.
	Template string
	// IsUnmapped is true if an administrator has to change the configuration, and the claim can stay as it is.
	IsUnmapped bool
}

func problemf(format string, args ...any) *Problem {
	return &Problem{Message: fmt.Sprintf(format, args...)}
}

// Charge replaces the resource claims of a pod template by the quota that is charged for their devices. templates has the existing
// ResourceClaimTemplates. If there is a Problem the pod template is not changed.
func (m Mapping) Charge(pod *corev1.PodTemplateSpec, templates map[string]Template) *Problem {
	uids := map[string]string{}
	requests, problem := m.devices(pod.Spec.ResourceClaims, func(claim *corev1.PodResourceClaim) (spec *resourcev1.ResourceClaimSpec, isNeeded bool) {
		template, exists := templates[*claim.ResourceClaimTemplateName]
		if !exists {
			return nil, true
		}
		uids[*claim.ResourceClaimTemplateName] = string(template.UID)
		return &template.Spec, true
	})
	if problem != nil {
		return problem
	}
	setAnnotation(pod, apis.ClaimTemplatesAnnotation, uids)
	setOverhead(pod, requests)
	pod.Spec.ResourceClaims = nil
	return nil
}

// devices returns what is charged for the devices of some resource claims. specOf returns the spec that a claim has by its template, which is nil
// if it does not exist, and whether the pods need the claim.
func (m Mapping) devices(claims []corev1.PodResourceClaim, specOf func(*corev1.PodResourceClaim) (spec *resourcev1.ResourceClaimSpec, isNeeded bool)) (corev1.ResourceList, *Problem) {
	requests := corev1.ResourceList{}
	for i := range claims {
		claim := &claims[i]
		if claim.ResourceClaimTemplateName == nil {
			return nil, problemf("resource claim %q names a ResourceClaim, which pods can share, so that no quota can be charged for it: name a ResourceClaimTemplate", claim.Name)
		}
		spec, isNeeded := specOf(claim)
		switch template := *claim.ResourceClaimTemplateName; {
		case !isNeeded:
			continue
		case len(m) == 0:
			problem := problemf("resource claim %q is for devices, which no quota is charged for: an administrator must map their DeviceClasses in resources.deviceClassMappings of the manager's configuration", claim.Name)
			problem.IsUnmapped = true
			return nil, problem
		case spec == nil:
			problem := problemf("resource claim %q names ResourceClaimTemplate %q, which does not exist: create it", claim.Name, template)
			problem.IsMissing, problem.Template = true, template
			return nil, problem
		}
		if problem := m.add(requests, claim.Name, spec.Devices.Requests); problem != nil {
			return nil, problem
		}
	}
	return requests, nil
}

// add counts the devices of one claim.
func (m Mapping) add(to corev1.ResourceList, claim string, requests []resourcev1.DeviceRequest) *Problem {
	for i := range requests {
		r := &requests[i]
		exactly := r.Exactly
		switch {
		case exactly == nil:
			return problemf("request %q of resource claim %q lists alternatives (firstAvailable), and which of them is allocated is not known before scheduling: request exactly one DeviceClass", r.Name, claim)
		case exactly.AdminAccess != nil && *exactly.AdminAccess:
			return problemf("request %q of resource claim %q has adminAccess, which no quota is charged for: remove it", r.Name, claim)
		case exactly.AllocationMode != resourcev1.DeviceAllocationModeExactCount:
			return problemf("request %q of resource claim %q has the allocationMode %q: request a number of devices with %q",
				r.Name, claim, exactly.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
		}
		name, isMapped := m[exactly.DeviceClassName]
		if !isMapped {
			problem := problemf("request %q of resource claim %q is for DeviceClass %q, which no quota is charged for: an administrator must map it in resources.deviceClassMappings of the manager's configuration",
				r.Name, claim, exactly.DeviceClassName)
			problem.IsUnmapped = true
			return problem
		}
		sum := to[name]
		sum.Add(*resource.NewQuantity(exactly.Count, resource.DecimalSI))
		to[name] = sum
	}
	return nil
}

// Inherit copies the charges of another pod template, because its ResourceClaimTemplates have been deleted meanwhile.
func Inherit(pod, charged *corev1.PodTemplateSpec) {
	requests := corev1.ResourceList{}
	for _, name := range Resources(charged) {
		requests[name] = charged.Spec.Overhead[name]
	}
	setOverhead(pod, requests)
	pod.Spec.ResourceClaims = nil
	if value := charged.Annotations[apis.ClaimTemplatesAnnotation]; value != "" {
		pod.Annotations = with(pod.Annotations, apis.ClaimTemplatesAnnotation, value)
	}
}

// Names reports whether a resource claim of a pod names a ResourceClaimTemplate.
func Names(pod *corev1.PodSpec, template string) bool {
	return slices.ContainsFunc(pod.ResourceClaims, func(claim corev1.PodResourceClaim) bool {
		return ptr.Deref(claim.ResourceClaimTemplateName, "") == template
	})
}

// IsSame reports whether two pod templates are charged for claims of the same ResourceClaimTemplates, or for none.
func IsSame(a, b *corev1.PodTemplateSpec) bool {
	return a.Annotations[apis.ClaimTemplatesAnnotation] == b.Annotations[apis.ClaimTemplatesAnnotation] &&
		(len(a.Spec.ResourceClaims) > 0) == (len(b.Spec.ResourceClaims) > 0)
}

// Resources returns the resources that stand for the devices of a pod template. No node has them.
func Resources(pod *corev1.PodTemplateSpec) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range strings.SplitSeq(pod.Annotations[apis.DevicesAnnotation], ",") {
		if name != "" {
			names = append(names, corev1.ResourceName(name))
		}
	}
	return names
}

// IsCharged reports whether a pod template has fields that only Charge and Inherit may set.
func IsCharged(pod *corev1.PodTemplateSpec) bool {
	_, ofClaims := pod.Annotations[apis.ClaimTemplatesAnnotation]
	_, ofDevices := pod.Annotations[apis.DevicesAnnotation]
	return ofClaims || ofDevices
}

// Forget removes fields that only Charge and Inherit may set.
func Forget(pod *corev1.PodTemplateSpec) {
	pod.Annotations = maps.Clone(pod.Annotations)
	delete(pod.Annotations, apis.ClaimTemplatesAnnotation)
	delete(pod.Annotations, apis.DevicesAnnotation)
}

func setOverhead(pod *corev1.PodTemplateSpec, requests corev1.ResourceList) {
	if len(requests) == 0 {
		return
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		names = append(names, string(name))
	}
	pod.Spec.Overhead = overheadWith(pod.Spec.Overhead, requests)
	pod.Annotations = with(pod.Annotations, apis.DevicesAnnotation, strings.Join(names, ","))
}

// overheadWith returns a copy of the overhead of a pod to which requests are added.
func overheadWith(overhead, requests corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(overhead)
	if all == nil {
		all = corev1.ResourceList{}
	}
	for name := range requests {
		sum := all[name].DeepCopy()
		sum.Add(requests[name])
		all[name] = sum
	}
	return all
}

func setAnnotation(pod *corev1.PodTemplateSpec, key string, values map[string]string) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, name+"="+values[name])
	}
	pod.Annotations = with(pod.Annotations, key, strings.Join(parts, ","))
}

func with(annotations map[string]string, key, value string) map[string]string {
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}
