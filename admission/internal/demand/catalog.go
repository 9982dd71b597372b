package demand

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/podresources"
)

// A Catalog has one Demand for each demand in use, and the objects of the cluster that determine, besides its template, what a pod is charged and
// whether the API server will create it. When one of these changes, the demands that depend on it are computed again: waiting stages queue with
// their new demand, and admissions stay unchanged.
type Catalog struct {
	// draft is memory for a demand under construction, and draftKey for its key. Most demands turn out to be known.
	draft    Demand
	draftKey []byte
	// pods is memory for the pod specs of a demand under construction.
	pods    []podresources.PodSet
	Demands map[string]*Demand

	charges charge.Rules
	devices device.Mapping

	LimitRanges   map[types.NamespacedName]*version.Observed[*corev1.LimitRange]
	DeviceClasses map[string]*version.Observed[*resourcev1.DeviceClass]
	// ClaimTemplates are ResourceClaimTemplates.
	ClaimTemplates map[types.NamespacedName]*version.Observed[device.Template]
	// Overheads are the pod overheads of RuntimeClasses.
	Overheads map[string]corev1.ResourceList
	// PodLimits is derived from LimitRanges, by namespace, and Extended from DeviceClasses.
	PodLimits map[string]podresources.Limits
	Extended  device.Extended
}

// NewCatalog returns a Catalog without any Demand.
func NewCatalog(charges charge.Rules, devices device.Mapping) *Catalog {
	return &Catalog{
		charges: charges, devices: devices, Demands: map[string]*Demand{},
		LimitRanges:    map[types.NamespacedName]*version.Observed[*corev1.LimitRange]{},
		DeviceClasses:  map[string]*version.Observed[*resourcev1.DeviceClass]{},
		ClaimTemplates: map[types.NamespacedName]*version.Observed[device.Template]{},
		Overheads:      map[string]corev1.ResourceList{},
		PodLimits:      map[string]podresources.Limits{},
	}
}

// effective returns a pod spec as the API server makes it in a namespace.
func (c *Catalog) effective(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	var overhead corev1.ResourceList
	if spec.RuntimeClassName != nil {
		overhead = c.Overheads[*spec.RuntimeClassName]
	}
	limits := c.PodLimits[namespace]
	return limits.Effective(spec, overhead)
}

// withDevices returns a pod spec in which the charges for its devices are overhead, instead of resource claims, or a problem.
func (c *Catalog) withDevices(namespace string, spec *corev1.PodSpec) (*corev1.PodSpec, *device.Problem) {
	if len(spec.ResourceClaims) == 0 {
		return spec, nil
	}
	templates := map[string]device.Template{}
	for i := range spec.ResourceClaims {
		if name := spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			if known := c.ClaimTemplates[types.NamespacedName{Namespace: namespace, Name: *name}]; known != nil {
				templates[*name] = known.Fact
			}
		}
	}
	pod := corev1.PodTemplateSpec{Spec: *spec}
	problem := c.devices.Charge(&pod, templates)
	return &pod.Spec, problem
}

// chargesFor returns the charges for the requests of a pod.
func (c *Catalog) chargesFor(requests corev1.ResourceList) corev1.ResourceList {
	return c.Extended.Replace(requests, c.charges.Apply(requests))
}
