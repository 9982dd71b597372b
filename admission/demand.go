package admission

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
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A demand is the demand of pod sets. Stages with the same demand share one, so that a thousand equal stages are converted, stored and checked
// once.
type demand struct {
	key     string
	users   int
	podSets []flavor.PodSet
	// problem is what the Engine cannot do for these pod sets, or empty.
	problem string
	// isRejected is true if the problem is that the API server would not create the pods.
	isRejected bool
	// options has the offers of ClusterQueues for these pod sets.
	options map[*quota.Node]*offer
}

// An offer has the items of a demand in one ClusterQueue. Only Engine.offer creates it.
type offer struct {
	revision      uint64
	items         []flavor.Item
	infeasibility *flavor.Infeasibility
	// usage of the first options.
	first quota.Usage
	// sizeHint is the size hint for these pod sets alone.
	sizeHint sizeHint
}

// internDemand returns the demand with this key, creates it if there is none, and increments its user count.
func (e *Engine) internDemand(d *demand) *demand {
	if known := e.demands[d.key]; known != nil {
		d = known
	} else {
		d.options = map[*quota.Node]*offer{}
		e.demands[d.key] = d
	}
	d.users++
	return d
}

// releaseDemand decrements the user count of a demand, which may be nil.
func (e *Engine) releaseDemand(d *demand) {
	if d == nil {
		return
	}
	if d.users--; d.users == 0 {
		delete(e.demands, d.key)
	}
}

// offer returns the offer of a ClusterQueue for a demand.
func (e *Engine) offer(d *demand, q *clusterQueue) *offer {
	o := d.options[q.node]
	if o == nil || o.revision != e.revision {
		supply := e.supply(q)
		items, infeasibility := supply.Items(d.podSets)
		o = &offer{revision: e.revision, items: items, infeasibility: infeasibility}
		if infeasibility == nil {
			o.first = make(flavor.Choice, len(items)).Usage(items)
		}
		d.options[q.node] = o
	}
	return o
}

// workloadPods are the pod sets of a quota Workload.
type workloadPods struct {
	reclaimable []kueue.ReclaimablePod
	// podSets belong to the object that was observed, and are not changed. pinned is its annotation apis.FlavorsAnnotation. isGang is true if it
	// is for a gang of pods.
	podSets []kueue.PodSet
	pinned  string
	isGang  bool
}

// demandOf returns the demand of the pod sets of a quota Workload, and increments its user count.
func (e *Engine) demandOf(namespace string, of *workloadPods) *demand {
	d := &e.draft
	d.podSets, d.problem, d.isRejected = d.podSets[:0], "", false
	e.pods = e.pods[:0]
	for i := range of.podSets {
		p := &of.podSets[i]
		spec, count := &p.Template.Spec, countOf(p, of.reclaimable)
		if !of.isGang {
			// Pods of a gang exist already, as the API server created them, or are reserved without a template.
			spec = e.effective(namespace, spec)
			e.addPods(count, podresources.PodSet{Name: string(p.Name), Index: i, Spec: spec})
		}
		if of.isGang {
			d.checkClaims(string(p.Name), spec)
		} else {
			spec = e.chargeClaims(d, namespace, i, spec)
		}
		podSet := flavor.PodSet{Name: string(p.Name), Count: count, Pod: flavor.NewPod(spec)}
		if len(d.podSets) < cap(d.podSets) {
			podSet.Requests = d.podSets[:i+1][i].Requests[:0]
		}
		if p.MinCount != nil {
			podSet.Min = min(max(*p.MinCount, 1), max(podSet.Count, 0))
		}
		podSet.Pinned = pinned(of.pinned, podSet.Name)
		d.add(podSet, e.chargesFor(stageplan.PodRequests(spec)))
	}
	d.checkResources(e.podLimits[namespace], e.pods)
	e.draftKey = d.appendKey(e.draftKey[:0])
	if known := e.demands[string(e.draftKey)]; known != nil {
		known.users++
		return known
	}
	made := e.draft
	made.key = string(e.draftKey)
	e.draft = demand{}
	return e.internDemand(&made)
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
func (e *Engine) demandOfStage(namespace string, stage *stageplan.Stage) *demand {
	d := &demand{}
	e.pods = e.pods[:0]
	for i := range stage.PodSets {
		p := &stage.PodSets[i]
		requests, spec := p.Requests, e.effective(namespace, &p.Template.Spec)
		if spec != &p.Template.Spec {
			requests = stageplan.PodRequests(spec)
		}
		e.addPods(p.Count, podresources.PodSet{Name: p.Name, Index: i, Spec: spec})
		d.checkClaims(p.Name, spec)
		d.add(flavor.PodSet{Name: p.Name, Count: p.Count, Pod: flavor.NewPod(spec)}, e.chargesFor(requests))
	}
	d.checkResources(e.podLimits[namespace], e.pods)
	d.key = string(d.appendKey(nil))
	return d
}

// add adds a pod set, and multiplies the requests of one pod. Requests that cannot be charged are a problem.
func (d *demand) add(podSet flavor.PodSet, requests corev1.ResourceList) {
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
	d.podSets = append(d.podSets, podSet)
}

// chargeClaims returns a pod spec with the charges for its devices. Devices that are charged to no quota are a problem.
func (e *Engine) chargeClaims(d *demand, namespace string, podSet int, spec *corev1.PodSpec) *corev1.PodSpec {
	charged, problem := e.withDevices(namespace, spec)
	if problem != nil {
		d.complain("spec.podSets[%d].template.spec.resourceClaims: %s", podSet, problem.Message)
	}
	return charged
}

// checkClaims refuses devices that are charged to no quota. Controllers replace the resource claims of JobSets and of gangs of pods by requests
// where they can.
func (d *demand) checkClaims(podSet string, pod *corev1.PodSpec) {
	for i := range pod.ResourceClaims {
		d.complain("pod set %s has the resource claim %q, whose devices are charged to no quota: remove it from spec.resourceClaims, or request an extended resource",
			podSet, pod.ResourceClaims[i].Name)
	}
}

// addPods notes the pods of a pod set for checkResources, unless none of them has still to be created.
func (e *Engine) addPods(count int32, podSet podresources.PodSet) {
	if count > 0 {
		e.pods = append(e.pods, podSet)
	}
}

// checkResources refuses pods that the API server would not create. It must be called last.
func (d *demand) checkResources(limits podresources.Limits, pods []podresources.PodSet) {
	if violation := limits.Violation(pods); violation != "" {
		d.complain("%s", violation)
		d.isRejected = d.problem == violation
	}
}

func (d *demand) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.problem == "" || text < d.problem {
		d.problem = text
	}
}

// appendKey appends the key, which is equal only for demands for which every check gives the same answer. Names are quoted, so that those of one
// tenant cannot equal the demand of another.
func (d *demand) appendKey(b []byte) []byte {
	b = strconv.AppendQuote(b, d.problem)
	for i := range d.podSets {
		p := &d.podSets[i]
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
