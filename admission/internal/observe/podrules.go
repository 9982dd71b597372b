package observe

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/podresources"
)

func (ev LimitRangeObserved) apply(o *Observer) {
	object := ev.LimitRange
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	v := version.Of(object.UID, object.ResourceVersion)
	if known := o.m.Demand.LimitRanges[key]; known != nil && v.IsOlderThan(known.Version) {
		return
	}
	o.m.Demand.LimitRanges[key] = &version.Observed[*corev1.LimitRange]{Fact: object.DeepCopy(), Version: v}
	o.renewLimits(key.Namespace)
}

func (ev LimitRangeGone) apply(o *Observer) {
	delete(o.m.Demand.LimitRanges, ev.Key)
	o.renewLimits(ev.Key.Namespace)
}

// renewLimits recomputes the limits of the LimitRanges of a namespace.
func (o *Observer) renewLimits(namespace string) {
	var ranges []*corev1.LimitRange
	for key, known := range o.m.Demand.LimitRanges {
		if key.Namespace == namespace {
			ranges = append(ranges, known.Fact)
		}
	}
	before, now := o.m.Demand.PodLimits[namespace], podresources.Merge(ranges)
	if equality.Semantic.DeepEqual(before, now) {
		return
	}
	o.m.Demand.PodLimits[namespace] = now
	if len(ranges) == 0 {
		delete(o.m.Demand.PodLimits, namespace)
	}
	o.reshape(func(s *model.Stage) bool { return s.Key.Namespace == namespace })
}

func (ev RuntimeClassObserved) apply(o *Observer) { o.observeOverhead(ev.Name, ev.Overhead.DeepCopy()) }

func (ev RuntimeClassGone) apply(o *Observer) { o.observeOverhead(ev.Name, nil) }

func (o *Observer) observeOverhead(runtimeClass string, overhead corev1.ResourceList) {
	if equality.Semantic.DeepEqual(o.m.Demand.Overheads[runtimeClass], overhead) {
		return
	}
	o.m.Demand.Overheads[runtimeClass] = overhead
	if overhead == nil {
		delete(o.m.Demand.Overheads, runtimeClass)
	}
	o.reshape(func(s *model.Stage) bool {
		return slices.ContainsFunc(s.PodSets, func(p kueue.PodSet) bool {
			return ptr.Deref(p.Template.Spec.RuntimeClassName, "") == runtimeClass
		})
	})
}

func (ev DeviceClassObserved) apply(o *Observer) {
	object := ev.DeviceClass
	v := version.Of(object.UID, object.ResourceVersion)
	if known := o.m.Demand.DeviceClasses[object.Name]; known != nil && v.IsOlderThan(known.Version) {
		return
	}
	o.m.Demand.DeviceClasses[object.Name] = &version.Observed[*resourcev1.DeviceClass]{Fact: object.DeepCopy(), Version: v}
	o.renewExtended()
}

func (ev DeviceClassGone) apply(o *Observer) {
	delete(o.m.Demand.DeviceClasses, ev.Name)
	o.renewExtended()
}

// renewExtended recomputes the charges of extended resources that devices serve.
func (o *Observer) renewExtended() {
	classes := make([]*resourcev1.DeviceClass, 0, len(o.m.Demand.DeviceClasses))
	for _, known := range o.m.Demand.DeviceClasses {
		classes = append(classes, known.Fact)
	}
	now := o.m.Config.Devices.Extended(classes)
	if maps.Equal(o.m.Demand.Extended, now) {
		return
	}
	o.m.Demand.Extended = now
	o.reshape(func(*model.Stage) bool { return true })
}

func (ev ClaimTemplateObserved) apply(o *Observer) {
	object := ev.Template
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	v := version.Of(object.UID, object.ResourceVersion)
	known := o.m.Demand.ClaimTemplates[key]
	if known != nil && v.IsOlderThan(known.Version) {
		return
	}
	template := device.Template{UID: object.UID, Spec: *object.Spec.Spec.DeepCopy()}
	o.m.Demand.ClaimTemplates[key] = &version.Observed[device.Template]{Fact: template, Version: v}
	if known == nil || known.Fact.UID != template.UID {
		o.reshapeClaiming(key)
	}
}

func (ev ClaimTemplateGone) apply(o *Observer) {
	delete(o.m.Demand.ClaimTemplates, ev.Key)
	o.reshapeClaiming(ev.Key)
}

// reshapeClaiming recomputes the demands of the stages that name a ResourceClaimTemplate.
func (o *Observer) reshapeClaiming(template types.NamespacedName) {
	o.reshape(func(s *model.Stage) bool {
		return s.Key.Namespace == template.Namespace && slices.ContainsFunc(s.PodSets, func(p kueue.PodSet) bool {
			return device.Names(&p.Template.Spec, template.Name)
		})
	})
}

// reshape recomputes the demands of some stages, and those of their plans.
func (o *Observer) reshape(isConcerned func(*model.Stage) bool) {
	var concerned []*model.Stage
	for _, s := range o.m.Stages {
		if isConcerned(s) {
			concerned = append(concerned, s)
		}
	}
	slices.SortFunc(concerned, model.CompareStages)
	planned := map[*model.JobSet]bool{}
	for _, s := range concerned {
		before := s.Demand
		s.Demand = o.m.Demand.DemandOf(s.Key.Namespace, &s.WorkloadPods)
		if s.Demand != before {
			s.LastRefusal = nil // its status reports the demand
		}
		o.m.Demand.ReleaseDemand(before)
		if j := o.m.JobSets[s.OwnerUID]; j != nil && j.IsKnown() && !planned[j] {
			planned[j] = true
			o.adoptPlan(j, PlanObserved{Owner: j.Owner, UID: j.UID, Submitted: j.Submitted, StageAdmission: j.Policy, Plan: j.Plan})
		}
		o.m.Refresh(s)
	}
}
