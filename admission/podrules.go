package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podresources"
)

// podRules are the objects of the cluster that determine, besides its template, what a pod is charged and whether the API server will create it.
// When one of them changes, the demands that depend on it are computed again: waiting stages queue with their new demand, and admissions stay
// unchanged.
type podRules struct {
	charges charge.Rules
	devices device.Mapping

	limitRanges   map[types.NamespacedName]*observed[*corev1.LimitRange]
	deviceClasses map[string]*observed[*resourcev1.DeviceClass]
	// claimTemplates are ResourceClaimTemplates.
	claimTemplates map[types.NamespacedName]*observed[device.Template]
	// overheads are the pod overheads of RuntimeClasses.
	overheads map[string]corev1.ResourceList
	// podLimits is derived from limitRanges, by namespace, and extended from deviceClasses.
	podLimits map[string]podresources.Limits
	extended  device.Extended
}

func newPodRules(charges charge.Rules, devices device.Mapping) podRules {
	return podRules{
		charges: charges, devices: devices,
		limitRanges:    map[types.NamespacedName]*observed[*corev1.LimitRange]{},
		deviceClasses:  map[string]*observed[*resourcev1.DeviceClass]{},
		claimTemplates: map[types.NamespacedName]*observed[device.Template]{},
		overheads:      map[string]corev1.ResourceList{},
		podLimits:      map[string]podresources.Limits{},
	}
}

func (e *Engine) observeLimitRange(object *corev1.LimitRange) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	v := versionOf(object.UID, object.ResourceVersion)
	if known := e.limitRanges[key]; known != nil && v.isOlderThan(known.version) {
		return
	}
	e.limitRanges[key] = &observed[*corev1.LimitRange]{object.DeepCopy(), v}
	e.renewLimits(key.Namespace)
}

func (e *Engine) loseLimitRange(key types.NamespacedName) {
	delete(e.limitRanges, key)
	e.renewLimits(key.Namespace)
}

// renewLimits recomputes the limits of the LimitRanges of a namespace.
func (e *Engine) renewLimits(namespace string) {
	var ranges []*corev1.LimitRange
	for key, known := range e.limitRanges {
		if key.Namespace == namespace {
			ranges = append(ranges, known.fact)
		}
	}
	before, now := e.podLimits[namespace], podresources.Merge(ranges)
	if equality.Semantic.DeepEqual(before, now) {
		return
	}
	e.podLimits[namespace] = now
	if len(ranges) == 0 {
		delete(e.podLimits, namespace)
	}
	e.reshape(func(s *stage) bool { return s.key.Namespace == namespace })
}

func (e *Engine) observeOverhead(runtimeClass string, overhead corev1.ResourceList) {
	if equality.Semantic.DeepEqual(e.overheads[runtimeClass], overhead) {
		return
	}
	e.overheads[runtimeClass] = overhead
	if overhead == nil {
		delete(e.overheads, runtimeClass)
	}
	e.reshape(func(s *stage) bool {
		return slices.ContainsFunc(s.podSets, func(p kueue.PodSet) bool {
			return p.Template.Spec.RuntimeClassName != nil && *p.Template.Spec.RuntimeClassName == runtimeClass
		})
	})
}

func (e *Engine) observeDeviceClass(object *resourcev1.DeviceClass) {
	v := versionOf(object.UID, object.ResourceVersion)
	if known := e.deviceClasses[object.Name]; known != nil && v.isOlderThan(known.version) {
		return
	}
	e.deviceClasses[object.Name] = &observed[*resourcev1.DeviceClass]{object.DeepCopy(), v}
	e.renewExtended()
}

func (e *Engine) loseDeviceClass(name string) {
	delete(e.deviceClasses, name)
	e.renewExtended()
}

// renewExtended recomputes the charges of extended resources that devices serve.
func (e *Engine) renewExtended() {
	classes := make([]*resourcev1.DeviceClass, 0, len(e.deviceClasses))
	for _, known := range e.deviceClasses {
		classes = append(classes, known.fact)
	}
	now := e.config.Devices.Extended(classes)
	if maps.Equal(e.extended, now) {
		return
	}
	e.extended = now
	e.reshape(func(*stage) bool { return true })
}

func (e *Engine) observeClaimTemplate(object *resourcev1.ResourceClaimTemplate) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	v := versionOf(object.UID, object.ResourceVersion)
	known := e.claimTemplates[key]
	if known != nil && v.isOlderThan(known.version) {
		return
	}
	template := device.Template{UID: object.UID, Spec: *object.Spec.Spec.DeepCopy()}
	e.claimTemplates[key] = &observed[device.Template]{template, v}
	if known == nil || known.fact.UID != template.UID {
		e.reshapeClaiming(key)
	}
}

func (e *Engine) loseClaimTemplate(key types.NamespacedName) {
	delete(e.claimTemplates, key)
	e.reshapeClaiming(key)
}

// reshapeClaiming recomputes the demands of the stages that name a ResourceClaimTemplate.
func (e *Engine) reshapeClaiming(template types.NamespacedName) {
	e.reshape(func(s *stage) bool {
		return s.key.Namespace == template.Namespace && slices.ContainsFunc(s.podSets, func(p kueue.PodSet) bool {
			return device.Names(&p.Template.Spec, template.Name)
		})
	})
}

// reshape recomputes the demands of some stages, and those of their plans.
func (e *Engine) reshape(isConcerned func(*stage) bool) {
	var concerned []*stage
	for _, s := range e.stages {
		if isConcerned(s) {
			concerned = append(concerned, s)
		}
	}
	slices.SortFunc(concerned, compareStages)
	planned := map[*jobSet]bool{}
	for _, s := range concerned {
		before := s.demand
		s.demand = e.demandOf(s.key.Namespace, &s.workloadPods)
		if s.demand != before {
			s.lastRefusal = Refusal{} // its status reports the demand
		}
		e.releaseDemand(before)
		if j := e.jobSets[s.owner]; j != nil && j.isKnown() && !planned[j] {
			planned[j] = true
			e.adoptPlan(j, PlanObserved{JobSet: j.key, UID: j.uid, Submitted: j.submitted, StageAdmission: j.policy, Plan: j.plan})
		}
		e.refresh(s)
	}
}

// effective returns a pod spec as the API server makes it in a namespace.
func (e *Engine) effective(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	var overhead corev1.ResourceList
	if spec.RuntimeClassName != nil {
		overhead = e.overheads[*spec.RuntimeClassName]
	}
	limits := e.podLimits[namespace]
	return limits.Effective(spec, overhead)
}

// withDevices returns a pod spec in which the charges for its devices are overhead, instead of resource claims, or a problem.
func (e *Engine) withDevices(namespace string, spec *corev1.PodSpec) (*corev1.PodSpec, *device.Problem) {
	if len(spec.ResourceClaims) == 0 {
		return spec, nil
	}
	templates := map[string]device.Template{}
	for i := range spec.ResourceClaims {
		if name := spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			if known := e.claimTemplates[types.NamespacedName{Namespace: namespace, Name: *name}]; known != nil {
				templates[*name] = known.fact
			}
		}
	}
	pod := corev1.PodTemplateSpec{Spec: *spec}
	problem := e.devices.Charge(&pod, templates)
	return &pod.Spec, problem
}

// chargesFor returns the charges for the requests of a pod.
func (e *Engine) chargesFor(requests corev1.ResourceList) corev1.ResourceList {
	return e.extended.Replace(requests, e.charges.Apply(requests))
}
