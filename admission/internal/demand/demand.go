package demand

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// An SizeHint is a cached size hint. It is valid while the queue and the limits stay the same.
type SizeHint struct {
	Node     *quota.Node
	Revision uint64
	Text     string
}

// A Demand is the demand of pod sets. Stages with the same demand share one, so that a thousand equal stages are converted, stored and checked
// once.
type Demand struct {
	Key     string
	users   int
	PodSets []flavor.PodSet
	// Problem is what the Engine cannot do for these pod sets, or empty.
	Problem string
	// IsRejected is true if the problem is that the API server would not create the pods.
	IsRejected bool
	// Options has the offers of ClusterQueues for these pod sets.
	Options map[*quota.Node]*Offer
}

// An Offer has the items of a demand in one ClusterQueue. Only Engine.offer creates it.
type Offer struct {
	Revision      uint64
	Items         []flavor.Item
	Infeasibility *flavor.Infeasibility
	// First is the usage of the first options.
	First quota.Usage
	// SizeHint is the size hint for these pod sets alone.
	SizeHint SizeHint
}

// InternDemand returns the demand with this key, creates it if there is none, and increments its user count.
func (c *Catalog) InternDemand(d *Demand) *Demand {
	if known := c.Demands[d.Key]; known != nil {
		d = known
	} else {
		d.Options = map[*quota.Node]*Offer{}
		c.Demands[d.Key] = d
	}
	d.users++
	return d
}

// ReleaseDemand decrements the user count of a demand, which may be nil.
func (c *Catalog) ReleaseDemand(d *Demand) {
	if d == nil {
		return
	}
	if d.users--; d.users == 0 {
		delete(c.Demands, d.Key)
	}
}

// WorkloadPods are the pod sets of a quota Workload.
type WorkloadPods struct {
	Reclaimable []kueue.ReclaimablePod
	// PodSets belong to the object that was observed, and are not changed. Pinned is its annotation apis.FlavorsAnnotation. IsGang is true if it
	// is for a gang of pods.
	PodSets []kueue.PodSet
	Pinned  string
	IsGang  bool
}

// DemandOf returns the demand of the pod sets of a quota Workload, and increments its user count.
func (c *Catalog) DemandOf(namespace string, of *WorkloadPods) *Demand {
	d := &c.draft
	d.PodSets, d.Problem, d.IsRejected = d.PodSets[:0], "", false
	c.pods = c.pods[:0]
	for i := range of.PodSets {
		p := &of.PodSets[i]
		spec, count := &p.Template.Spec, quotaworkload.CountOf(p, of.Reclaimable)
		if !of.IsGang {
			// Pods of a gang exist already, as the API server created them, or are reserved without a template.
			spec = c.effective(namespace, spec)
			c.addPods(count, podresources.PodSet{Name: string(p.Name), Index: i, Spec: spec})
		}
		if of.IsGang {
			d.checkClaims(string(p.Name), spec)
		} else {
			spec = c.chargeClaims(d, namespace, i, spec)
		}
		podSet := flavor.PodSet{Name: string(p.Name), Count: count, Pod: flavor.NewPod(spec)}
		if len(d.PodSets) < cap(d.PodSets) {
			podSet.Requests = d.PodSets[:i+1][i].Requests[:0]
		}
		if p.MinCount != nil {
			podSet.Min = min(max(*p.MinCount, 1), max(podSet.Count, 0))
		}
		podSet.Pinned = pinned(of.Pinned, podSet.Name)
		d.add(podSet, c.chargesFor(stageplan.PodRequests(spec)))
	}
	d.checkResources(c.PodLimits[namespace], c.pods)
	c.draftKey = d.appendKey(c.draftKey[:0])
	if known := c.Demands[string(c.draftKey)]; known != nil {
		known.users++
		return known
	}
	made := c.draft
	made.Key = string(c.draftKey)
	c.draft = Demand{}
	return c.InternDemand(&made)
}

// pinned parses the entries of a pod set in FlavorsAnnotation. It is nil if there are none.
func pinned(list, podSet string) map[corev1.ResourceName]kueue.ResourceFlavorReference {
	var all map[corev1.ResourceName]kueue.ResourceFlavorReference
	for entry := range strings.SplitSeq(list, ",") {
		key, flavorName, ok := strings.Cut(entry, "=")
		name, resource, isKey := strings.Cut(key, "/")
		if !ok || !isKey || name != podSet {
			continue
		}
		if all == nil {
			all = map[corev1.ResourceName]kueue.ResourceFlavorReference{}
		}
		all[corev1.ResourceName(resource)] = kueue.ResourceFlavorReference(flavorName)
	}
	return all
}

// demandOfStage converts the pod sets of a stage of a plan.
func (c *Catalog) demandOfStage(namespace string, stage *stageplan.Stage) *Demand {
	d := &Demand{}
	c.pods = c.pods[:0]
	for i := range stage.PodSets {
		p := &stage.PodSets[i]
		requests, spec := p.Requests, c.effective(namespace, &p.Template.Spec)
		if spec != &p.Template.Spec {
			requests = stageplan.PodRequests(spec)
		}
		c.addPods(p.Count, podresources.PodSet{Name: p.Name, Index: i, Spec: spec})
		d.checkClaims(p.Name, spec)
		d.add(flavor.PodSet{Name: p.Name, Count: p.Count, Pod: flavor.NewPod(spec)}, c.chargesFor(requests))
	}
	d.checkResources(c.PodLimits[namespace], c.pods)
	d.Key = string(d.appendKey(nil))
	return d
}

// add adds a pod set, and multiplies the requests of one pod. Requests that cannot be charged are a problem.
func (d *Demand) add(podSet flavor.PodSet, requests corev1.ResourceList) {
	if podSet.Count < 0 {
		d.complain("pod set %s has a negative count", podSet.Name)
	}
	for name, q := range requests {
		amount, exact := quota.Of(name, q)
		total := amount.Times(podSet.Count)
		if !exact || total > quota.MaxCharge {
			d.complain("pod set %s asks for %s %s in each of %d pods, which cannot be charged to any quota", podSet.Name, q.String(), name, podSet.Count)
			continue
		}
		podSet.Requests = append(podSet.Requests, flavor.Request{Resource: name, Amount: total})
	}
	slices.SortFunc(podSet.Requests, flavor.CompareRequests)
	d.PodSets = append(d.PodSets, podSet)
}

// chargeClaims returns a pod spec with the charges for its devices. Devices that are charged to no quota are a problem.
func (c *Catalog) chargeClaims(d *Demand, namespace string, podSet int, spec *corev1.PodSpec) *corev1.PodSpec {
	charged, problem := c.withDevices(namespace, spec)
	if problem != nil {
		d.complain("spec.podSets[%d].template.spec.resourceClaims: %s", podSet, problem.Message)
	}
	return charged
}

// checkClaims refuses devices that are charged to no quota. Controllers replace the resource claims of JobSets and of gangs of pods by requests
// where they can.
func (d *Demand) checkClaims(podSet string, pod *corev1.PodSpec) {
	for i := range pod.ResourceClaims {
		d.complain("pod set %s has the resource claim %q, whose devices are charged to no quota: remove it from spec.resourceClaims, or request an extended resource",
			podSet, pod.ResourceClaims[i].Name)
	}
}

// addPods notes the pods of a pod set for checkResources, unless none of them has still to be created.
func (c *Catalog) addPods(count int32, podSet podresources.PodSet) {
	if count > 0 {
		c.pods = append(c.pods, podSet)
	}
}

// checkResources refuses pods that the API server would not create. It must be called last.
func (d *Demand) checkResources(limits podresources.Limits, pods []podresources.PodSet) {
	if violation := limits.Violation(pods); violation != "" {
		d.complain("%s", violation)
		d.IsRejected = d.Problem == violation
	}
}

func (d *Demand) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.Problem == "" || text < d.Problem {
		d.Problem = text
	}
}

// appendKey appends the key, which is equal only for demands for which every check gives the same answer. Names are quoted, so that those of one
// tenant cannot equal the demand of another.
func (d *Demand) appendKey(b []byte) []byte {
	b = strconv.AppendQuote(b, d.Problem)
	for i := range d.PodSets {
		p := &d.PodSets[i]
		b = append(b, '\n')
		b = strconv.AppendQuote(b, p.Name)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(p.Count), 10)
		if p.Min > 0 {
			b = append(b, '>')
			b = strconv.AppendInt(b, int64(p.Min), 10)
		}
		for _, r := range p.Requests {
			b = append(b, ' ')
			b = strconv.AppendQuote(b, string(r.Resource))
			b = append(b, '=')
			b = strconv.AppendInt(b, int64(r.Amount), 10)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Pinned)) {
			b = append(b, '@')
			b = strconv.AppendQuote(b, string(name)+"="+string(p.Pinned[name]))
		}
		b = append(b, ' ')
		b = append(b, p.Pod.Signature()...)
	}
	return b
}

// DemandsOf returns the demands of the stages, and one without pod sets that stands for the plan.
func (c *Catalog) DemandsOf(namespace string, plan *stageplan.Plan) (stages []*Demand, whole *Demand) {
	var b strings.Builder
	b.WriteString("plan " + plan.String())
	for i := range plan.Stages {
		d := c.demandOfStage(namespace, &plan.Stages[i])
		stages = append(stages, d)
		b.WriteString("\n" + d.Key)
	}
	return stages, &Demand{Key: b.String()}
}
