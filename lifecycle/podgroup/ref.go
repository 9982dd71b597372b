package podgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
)

// A Kind is a way in which pods name their gang.
type Kind string

const (
	// Kueue uses Kueue's label or annotation. There is no object.
	Kueue Kind = "kueue"
	// Core uses spec.schedulingGroup: a PodGroup of Kubernetes.
	Core Kind = "core"
	// Coscheduling uses the label of the scheduler plugin: a PodGroup of its own API.
	Coscheduling Kind = "coscheduling"
	// Koordinator uses Koordinator's label: a PodGroup of its own API.
	Koordinator Kind = "koordinator"
	// Lightweight uses only Koordinator's annotations, or older labels. There is no object.
	Lightweight Kind = "lightweight"
	// GroupName uses the annotation of kube-batch and Volcano: a PodGroup of one of them.
	GroupName Kind = "group-name"
	// Single is for pods that name no gang: each is a gang of one, whose name no other pod can use. There is no object.
	Single Kind = "pod"
)

// A Ref names a gang.
type Ref struct {
	Kind            Kind
	Namespace, Name string
}

// RefOf returns the gang that a pod names. If it names several, the first of the Kinds counts, in the order of their declaration. A member that names
// none is a gang of one: the admission policies let no pod name a gang later.
func RefOf(pod *corev1.Pod) (ref Ref, ok bool) {
	core := ""
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		core = *group.PodGroupName
	}
	for _, named := range []struct {
		kind Kind
		name string
	}{
		{Kueue, pod.Annotations[apis.PodGroupNameLabel]},
		{Kueue, pod.Labels[apis.PodGroupNameLabel]},
		{Core, core},
		{Coscheduling, pod.Labels[apis.CoschedulingLabel]},
		{Koordinator, pod.Labels[apis.KoordinatorLabel]},
		{Lightweight, pod.Annotations[apis.KoordinatorPrefix+"name"]},
		{Lightweight, pod.Labels[apis.KoordinatorOldPrefix+"name"]},
		{GroupName, pod.Annotations[apis.GroupNameAnnotation]},
	} {
		if named.name != "" {
			return Ref{named.kind, pod.Namespace, named.name}, true
		}
	}
	if IsMember(pod) && pod.Name != "" {
		return Ref{Single, pod.Namespace, pod.Name}, true
	}
	return Ref{}, false
}

// RefOfJob returns the gang that the pods of a Job name. Those of a JobSet are no members of a gang.
func RefOfJob(job *batchv1.Job) (ref Ref, ok bool) {
	if job.Labels[jobset.JobSetNameKey] != "" {
		return Ref{}, false
	}
	template := &job.Spec.Template
	return RefOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Labels: template.Labels, Annotations: template.Annotations},
		Spec:       corev1.PodSpec{SchedulingGroup: template.Spec.SchedulingGroup},
	})
}

// ParseRef parses the result of String.
func ParseRef(namespace, text string) (ref Ref, ok bool) {
	kind, name, ok := strings.Cut(text, ".")
	return Ref{Kind(kind), namespace, name}, ok && name != ""
}

// String returns the kind and the name.
func (r Ref) String() string { return string(r.Kind) + "." + r.Name }

// HasObject reports whether the gang has a PodGroup, and is not described by its pods alone.
func (r Ref) HasObject() bool { return r.Kind != Kueue && r.Kind != Lightweight && r.Kind != Single }

// Full returns the namespace and the name, in the form of lists of GangGroups.
func (r Ref) Full() string { return r.Namespace + "/" + r.Name }

// Label returns the value of the label apis.PodGroupKey.
func (r Ref) Label() string { return fitting(r.String(), maxLabel, isLabelRune) }

const (
	maxLabel = 63
	maxName  = 200
	// hashLength is long enough that no collision can be constructed.
	hashLength = 32
)

func isLabelRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

func isNameRune(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

// fitting returns the text unchanged, if it fits, or the usable part of it with a hash that makes it unique.
func fitting(text string, most int, allowed func(rune) bool) string {
	ends := strings.Trim(text, "-_.") == text
	if len(text) <= most && ends && strings.IndexFunc(text, func(c rune) bool { return !allowed(c) }) < 0 {
		return text
	}
	return cut(text, most-1-hashLength, allowed) + "-" + Digest(text)
}

// cut returns the usable part of a text, which is never empty.
func cut(text string, most int, allowed func(rune) bool) string {
	kept := strings.Map(func(c rune) rune {
		if !allowed(c) {
			return '-'
		}
		return c
	}, text)
	kept = strings.Trim(kept[:min(len(kept), most)], "-_.")
	if kept == "" {
		return "x"
	}
	return kept
}

// Digest returns a hash of texts. No two lists of texts with the same hash can be constructed.
func Digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// WorkloadName returns the name of the first quota Workload of a gang. With Kueue's label it is the name of the group, and for a gang of one a name
// made from that of the pod, as in Kueue. All but the first end with a unique part, which also differs from that of an earlier object of the same name.
func (g *Gang) WorkloadName() string {
	switch g.Kind {
	case Kueue:
		return fitting(g.Name, maxName, func(c rune) bool { return isNameRune(c) || c == '.' })
	case Single:
		return workloadname.Of(workloadname.Owner{Kind: "Pod", Name: g.Name, UID: g.Incarnation()}, "")
	case Core, Coscheduling, Koordinator, Lightweight, GroupName:
	}
	const length = 5
	name := "podgroup-" + string(g.Kind) + "-" + cut(strings.ToLower(g.Name), maxName, isNameRune)
	return name + "-" + Digest(g.String(), string(g.Incarnation()))[:length]
}

// IsMember reports whether the admission policies have made a pod a member of a gang.
func IsMember(object metav1.Object) bool {
	return object.GetLabels()[apis.PodGroupMemberLabel] == apis.PodGroupMemberValue
}
