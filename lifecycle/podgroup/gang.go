package podgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

const (
	// mostPods bounds numbers of pods, so that their sums do not overflow.
	mostPods = 1 << 24
	// mostOwners bounds the owner references of a quota Workload, and so the lookups of the garbage collector.
	mostOwners = 16
	// mostQuoted bounds the length of quoted user input.
	mostQuoted = 64
)

// An Object is a PodGroup, of any API.
type Object struct {
	APIVersion  string
	Name        string
	UID         types.UID
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
	// MinMember is how many pods have to start together. Zero means unset, which counts as 1.
	MinMember int64
	// MinResources is the sum of the requests of these pods, if it is known before they exist.
	MinResources corev1.ResourceList
	// TimeoutSeconds is how long a gang may keep gathered quota, if positive.
	TimeoutSeconds int64
}

// A Gang is pods that start together, with all that they and their PodGroup ask for.
type Gang struct {
	Ref
	// Object is nil if there is no PodGroup, or none is needed.
	Object *Object
	// Pods are all members, the oldest first, without those in TimedOut.
	Pods []*corev1.Pod
	// TimedOut are gated pods of a gang that has timed out: they are not admitted before they are recreated. There are none unless
	// Settings.StopsAfterTimeout.
	TimedOut []*corev1.Pod
	// Min pods start together, and up to Total ask for quota with them.
	Min, Total int32
	// NonStrict is true if the gang gathers its quota in parts.
	NonStrict bool
	// GangGroup has the names of all gangs that start together with this one, itself among them, in order. It is empty if there is no other.
	GangGroup []string
	// Wait is how long a gang may keep gathered quota.
	Wait time.Duration
	// Queue is the name of the LocalQueue, and PriorityClass that of the WorkloadPriorityClass, or empty.
	Queue, PriorityClass string
	// stops is true if pods that have timed out are not admitted.
	stops bool
}

// Settings are the part of the configuration that is about gangs.
type Settings struct {
	// Wait is how long a gang without its own timeout keeps quota with which it cannot start.
	Wait time.Duration
	// StopsAfterTimeout is true if a gang for which Koordinator's annotations count does not queue again after that time.
	StopsAfterTimeout bool
}

// Problems are what a user has to change before a gang can be admitted: what is wrong where, and how to fix it.
type Problems []string

// String joins the problems.
func (p Problems) String() string { return strings.Join(p, "; ") }

// brief shortens user input for messages.
func brief(text string) string { return Shorten(text, mostQuoted) }

// Shorten cuts a text after a number of bytes, between two runes.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func addf(p *Problems, format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// byAge orders the oldest pod first.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// New reads what a gang asks for. The pods must be members of the gang, as Devices.Charge returns them. If there are problems the Gang has what
// could be read.
func New(ref Ref, object *Object, pods []*corev1.Pod, settings Settings) (*Gang, Problems) {
	g := &Gang{Ref: ref, Object: object, Pods: slices.Clone(pods), Min: 1, Wait: settings.Wait}
	g.stops = settings.StopsAfterTimeout && g.HasKoordinatorSettings()
	slices.SortFunc(g.Pods, byAge)
	g.splitTimedOut()
	var problems Problems
	if ref.HasObject() && object == nil {
		addf(&problems, "PodGroup %q %s does not exist in namespace %q: create it (its API must be served), or remove the name of the group from the pods", ref.Name, ref.api(), ref.Namespace)
	}
	g.readCounts(&problems)
	g.readGroup(&problems)
	g.readQueue(&problems)
	g.checkPods(&problems)
	return g, problems
}

// api describes the API of a PodGroup.
func (r Ref) api() string {
	switch r.Kind {
	case Core:
		return "of scheduling.k8s.io"
	case Coscheduling:
		return "of scheduling.x-k8s.io"
	case Koordinator:
		return "of scheduling.sigs.k8s.io"
	case GroupName:
		return "of scheduling.volcano.sh, scheduling.incubator.k8s.io or incubator.scheduling.k8s.io"
	case Kueue, Lightweight, Single:
	}
	return ""
}

// living returns the pods that have not terminated, without those that are gated and being deleted. Pods that have timed out come last.
func (g *Gang) living() []*corev1.Pod {
	return slices.DeleteFunc(g.All(), func(pod *corev1.Pod) bool { return IsTerminal(pod) || IsVanishing(pod) })
}

// agreed returns the value that all waiting pods have, and adds a problem if they differ. If none waits it is that of the first living pod. The
// user need not fix pods that were ungated, or have terminated: pods that replace them may have other values.
func (g *Gang) agreed(what string, value func(*corev1.Pod) string, problems *Problems) string {
	var first *corev1.Pod
	for _, pod := range g.Pods {
		switch {
		case !IsWaiting(pod):
		case first == nil:
			first = pod
		case value(first) != value(pod):
			addf(problems, "pods %q and %q of the gang have different values of %s, %q and %q: make them equal",
				first.Name, pod.Name, what, brief(value(first)), brief(value(pod)))
			return value(first)
		}
	}
	if first != nil {
		return value(first)
	}
	if living := g.living(); len(living) > 0 {
		return value(living[0])
	}
	return ""
}

// setting returns an annotation of Koordinator: that of the pods if they have it, else that of the PodGroup.
func (g *Gang) setting(name string, problems *Problems) (value, where string) {
	key := apis.KoordinatorPrefix + name
	value = g.agreed("annotation "+key, func(pod *corev1.Pod) string { return pod.Annotations[key] }, problems)
	if value != "" {
		return value, "annotation " + key + " of the pods"
	}
	if g.Object != nil {
		value = g.Object.Annotations[key]
	}
	return value, fmt.Sprintf("annotation %s of PodGroup %q", key, g.Name)
}

// HasKoordinatorSettings reports whether Koordinator's annotations count for the gang. Koordinator reads them on the PodGroups of Coscheduling, too.
func (g *Gang) HasKoordinatorSettings() bool {
	return g.Kind == Koordinator || g.Kind == Lightweight || g.Kind == Coscheduling
}

func (g *Gang) readCounts(problems *Problems) {
	if g.Object != nil {
		g.Min = g.Object.min(problems)
		if seconds := g.Object.TimeoutSeconds; seconds > 0 {
			g.Wait = time.Duration(min(seconds, int64(1)<<31)) * time.Second
		}
	}
	g.Total = g.Min
	switch {
	case g.Kind == Kueue && len(g.living()) > 0:
		key := apis.PodGroupTotalCountAnnotation
		value := g.agreed("annotation "+key, func(pod *corev1.Pod) string { return pod.Annotations[key] }, problems)
		g.Min = number(value, "annotation "+key+" of the pods", problems)
		g.Total = g.Min
	case g.HasKoordinatorSettings():
		g.readKoordinator(problems)
	}
}

func (o *Object) min(problems *Problems) int32 {
	if o.MinMember < 0 || o.MinMember > mostPods {
		addf(problems, "PodGroup %q requires at least %d pods: set its minimum to a number from 1 to %d", o.Name, o.MinMember, mostPods)
		return 1
	}
	return int32(max(1, o.MinMember))
}

func (g *Gang) readKoordinator(problems *Problems) {
	least, where := g.setting("min-available", problems)
	if least == "" && g.Kind == Lightweight {
		key := apis.KoordinatorOldPrefix + "min-available"
		where = "annotation " + apis.KoordinatorPrefix + "min-available of the pods"
		least = g.agreed("label "+key, func(pod *corev1.Pod) string { return pod.Labels[key] }, problems)
	}
	if (least != "" || g.Kind == Lightweight) && len(g.living()) > 0 {
		g.Min = number(least, where, problems)
	}
	g.Total = g.Min
	if total, where := g.setting("total-number", problems); total != "" {
		g.Total = max(g.Min, number(total, where, problems))
	}
	mode, _ := g.setting("mode", problems)
	g.NonStrict = mode == "NonStrict" // Koordinator treats everything else as Strict
	if wait, where := g.setting("waiting-time", problems); wait != "" {
		duration, err := time.ParseDuration(wait)
		if err != nil || duration <= 0 {
			addf(problems, "%s is %q: set a duration such as 300s", where, brief(wait))
		} else {
			g.Wait = duration
		}
	}
}

// number parses a number of pods.
func number(text, where string, problems *Problems) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > mostPods {
		addf(problems, "%s is %q: set a number of pods from 1 to %d", where, brief(text), mostPods)
		return 1
	}
	return int32(n)
}

func (g *Gang) readQueue(problems *Problems) {
	label := func(key string) string {
		value := g.agreed("label "+key, func(pod *corev1.Pod) string { return pod.Labels[key] }, problems)
		if value == "" && g.Object != nil && len(g.living()) == 0 {
			value = g.Object.Labels[key]
		}
		return value
	}
	g.Queue, g.PriorityClass = label(apis.QueueLabel), label(apis.PriorityClassLabel)
}

// TopologyAnnotations are the annotations by which pods request a topology.
func TopologyAnnotations() []string {
	return []string{
		kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
		kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
		kueue.PodSetGroupName,
	}
}

// checkPods checks for settings that the engine would ignore.
func (g *Gang) checkPods(problems *Problems) {
	for _, pod := range g.living() {
		for _, key := range TopologyAnnotations() {
			if _, asks := pod.Annotations[key]; asks {
				addf(problems, "annotation %s of pod %q requests a topology, which is not supported for gangs of pods: remove the annotation", key, pod.Name)
				return
			}
		}
		if key := unsupportedKey(pod); key != "" {
			addf(problems, "pod %q has %s, which is not supported for gangs of pods: recreate the pod without it", pod.Name, key)
			return
		}
	}
}

// unsupportedKey returns a label or annotation of Kueue on a waiting pod that would be ignored.
func unsupportedKey(pod *corev1.Pod) string {
	if !IsWaiting(pod) {
		return ""
	}
	if pod.Labels[apis.PrebuiltWorkloadKey] != "" || pod.Annotations[apis.PrebuiltWorkloadKey] != "" {
		return apis.PrebuiltWorkloadKey
	}
	for _, setting := range []struct{ key, value string }{
		{apis.PodGroupFastAdmissionAnnotation, "true"}, {apis.PodGroupServingAnnotation, "true"}, {apis.RetriableInGroupAnnotation, "false"},
	} {
		if pod.Annotations[setting.key] == setting.value {
			return setting.key + ": " + setting.value
		}
	}
	return ""
}

// Incarnation distinguishes gangs of the same name: those of different PodGroups, and without a PodGroup those that have nothing in common.
func (g *Gang) Incarnation() types.UID {
	if g.Object != nil {
		return g.Object.UID
	}
	if len(g.Pods) == 0 {
		return ""
	}
	return g.Pods[0].UID
}

// Owns reports whether a quota Workload belongs to the gang, and not to an earlier PodGroup of its name.
func (g *Gang) Owns(w *kueue.Workload) bool {
	return g.Object == nil || w.Labels[apis.JobUIDLabel] == string(g.Object.UID)
}

// MissingOwners returns the owners that a quota Workload with these owners lacks, or none if it has enough of them. The garbage collector removes
// the deleted ones.
func (g *Gang) MissingOwners(present []metav1.OwnerReference) []metav1.OwnerReference {
	if g.Object != nil {
		return nil
	}
	owners := g.Owners()
	missing := slices.DeleteFunc(slices.Clone(owners), func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(present, func(p metav1.OwnerReference) bool { return p.UID == o.UID })
	})
	if len(owners)-len(missing) >= mostOwners/2 {
		return nil
	}
	return missing
}

// Owners returns the owners of an initial quota Workload: the PodGroup of the gang, or else the controllers of its pods, and pods themselves
// if they have none, as with Kueue. If there are many, only the oldest own it: one is enough to keep it. Pods that have terminated may be of an earlier
// run: they, and their controllers, only own it if there are no others.
func (g *Gang) Owners() []metav1.OwnerReference {
	if g.Object != nil {
		return []metav1.OwnerReference{{APIVersion: g.Object.APIVersion, Kind: "PodGroup", Name: g.Object.Name, UID: g.Object.UID, Controller: new(true)}}
	}
	pods := slices.DeleteFunc(slices.Clone(g.Pods), IsTerminal)
	if len(pods) == 0 {
		pods = g.Pods
	}
	var owners []metav1.OwnerReference
	for _, pod := range pods {
		owner := AsOwner(pod)
		if c := metav1.GetControllerOfNoCopy(pod); c != nil {
			owner = metav1.OwnerReference{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
		}
		if !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
			owners = append(owners, owner)
		}
		if len(owners) == mostOwners {
			break
		}
	}
	return owners
}

// AsOwner returns the owner reference of objects that a pod owns.
func AsOwner(pod *corev1.Pod) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
}
