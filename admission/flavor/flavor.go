package flavor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A Flavor is the relevant part of a ResourceFlavor.
type Flavor struct {
	Name kueue.ResourceFlavorReference
	// IsDeleted is true if the ResourceFlavor is deleted as soon as no ClusterQueue uses it.
	IsDeleted bool
	// HasTopology is true if the ResourceFlavor names a Topology.
	HasTopology bool
	nodeLabels  map[string]string
	taints      []corev1.Taint
	tolerations []corev1.Toleration
}

// New converts a ResourceFlavor, and keeps no reference to it.
func New(f *kueue.ResourceFlavor) *Flavor {
	return &Flavor{
		Name:        kueue.ResourceFlavorReference(f.Name),
		IsDeleted:   !f.DeletionTimestamp.IsZero(),
		HasTopology: f.Spec.TopologyName != nil,
		nodeLabels:  maps.Clone(f.Spec.NodeLabels),
		taints:      slices.Clone(f.Spec.NodeTaints),
		tolerations: slices.Clone(f.Spec.Tolerations),
	}
}

// Same reports whether two flavors admit the same pods, and both or neither are being deleted.
func (f *Flavor) Same(other *Flavor) bool {
	sameTaint := func(a, b corev1.Taint) bool { return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect }
	return f.Name == other.Name && f.IsDeleted == other.IsDeleted && f.HasTopology == other.HasTopology && maps.Equal(f.nodeLabels, other.nodeLabels) &&
		slices.EqualFunc(f.taints, other.taints, sameTaint) &&
		slices.Equal(words(f.tolerations), words(other.tolerations))
}

// words returns the parts of tolerations that are compared with taints.
func words(tolerations []corev1.Toleration) [][4]string {
	all := make([][4]string, len(tolerations))
	for i, t := range tolerations {
		all[i] = [4]string{t.Key, string(t.Operator), t.Value, string(t.Effect)}
	}
	return all
}

// A Pod is the part of a pod template that determines which flavors its pods may use.
type Pod struct {
	selector    map[string]string
	terms       []corev1.NodeSelectorTerm
	tolerations []corev1.Toleration
	signature   string
}

// NewPod converts the spec of a pod template, and keeps no reference to it.
func NewPod(spec *corev1.PodSpec) Pod {
	pod := Pod{selector: maps.Clone(spec.NodeSelector)}
	for _, t := range spec.Tolerations {
		t.TolerationSeconds = nil
		pod.tolerations = append(pod.tolerations, t)
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for i := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			pod.terms = append(pod.terms, *a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i].DeepCopy())
		}
	}
	// Quoted, so that one value cannot look like several.
	if len(pod.selector) > 0 || len(pod.terms) > 0 || len(pod.tolerations) > 0 {
		pod.signature = fmt.Sprintf("%q %q %q", pod.selector, pod.terms, words(pod.tolerations))
	}
	return pod
}

// Signature is equal only for pods that may use the same flavors.
func (p *Pod) Signature() string { return p.signature }

// Objection returns why pods may not use the flavor, or nothing if they may. Only those keys of their node selector and affinity count that some
// flavor of the group has as a node label; the scheduler checks the rest.
func (f *Flavor) Objection(pod *Pod, keys map[string]struct{}) string {
	for i := range f.taints {
		taint := &f.taints[i]
		if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if !tolerated(taint, pod.tolerations) && !tolerated(taint, f.tolerations) {
			return fmt.Sprintf("flavor %s has taint %s, which the pods do not tolerate", f.Name, taint.ToString())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.selector)) {
		if _, counts := keys[key]; counts && f.nodeLabels[key] != pod.selector[key] {
			return fmt.Sprintf("flavor %s does not have node label %s=%s, which the pods select", f.Name, key, pod.selector[key])
		}
	}
	return f.objectionByAffinity(pod, keys)
}

// objectionByAffinity checks the required node affinity, whose terms are alternatives. A term without relevant keys is satisfied by every flavor.
func (f *Flavor) objectionByAffinity(pod *Pod, keys map[string]struct{}) string {
	var terms []corev1.NodeSelectorTerm
	var wanted []string
	for i := range pod.terms {
		var term corev1.NodeSelectorTerm
		for _, r := range pod.terms[i].MatchExpressions {
			if _, counts := keys[r.Key]; counts {
				term.MatchExpressions = append(term.MatchExpressions, r)
				wanted = append(wanted, fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ",")))
			}
		}
		if len(term.MatchExpressions) == 0 {
			return ""
		}
		terms = append(terms, term)
	}
	if len(terms) == 0 {
		return ""
	}
	node := &corev1.Node{}
	node.Labels = f.nodeLabels
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: terms}).Match(node)
	switch {
	case err != nil:
		return fmt.Sprintf("the node affinity of the pods is malformed: %v", err)
	case !matches:
		return fmt.Sprintf("the node labels of flavor %s do not satisfy the node affinity of the pods: %s", f.Name, strings.Join(wanted, "; "))
	}
	return ""
}

func tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return tolerates(&t, taint) })
}

// tolerates follows the API: no effect means any, an empty key with Exists means any taint, and no operator means Equal.
func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Operator == corev1.TolerationOpExists {
		return t.Key == "" || t.Key == taint.Key
	}
	return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Key != "" && t.Key == taint.Key && t.Value == taint.Value
}
