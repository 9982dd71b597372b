package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// startOnTheWay is how long the start of a group may take to reach the kubelets, which are simulated in turn.
const startOnTheWay = time.Minute

// barrierContainer is the init container in which the pods of a group wait for each other.
const barrierContainer = "group-scheduling-init"

// A sighting is the time at which a fact was first true: the resource version, and when the auditor observed it. The version is 0 if it
// happened while the auditor did not watch.
type sighting struct {
	at   uint64
	seen time.Time
}

func sightingAt(now moment) *sighting {
	if now.earliest != now.latest {
		return &sighting{}
	}
	return &sighting{now.latest, time.Now()}
}

// A member is one pod of a JobSet or of a gang of pods. Its sightings are nil until they happen.
type member struct {
	name string
	// These are set for a pod of a JobSet. The attempt is the UID of the JobSet and the number of its restart.
	jobSet, attempt, replicatedJob, job string
	// ref is the gang of a pod in a queue.
	ref podgroup.Ref
	// signal is the entry that a pod waits for until its group has started, or empty.
	signal string
	// isPlacedElsewhere is true if another scheduler places the pod. Otherwise the PodGroup that it names counts.
	isPlacedElsewhere bool
	podGroup          client.ObjectKey

	since uint64
	// life is nil while the pod needs no quota.
	life *life
	// ungated is when the pod of a gang of pods had no gate, started when it began to wait for its group, or ran, bound when it had a node,
	// and ran when its main containers did.
	ungated, started, bound, ran *sighting
	ended                        *sighting
	succeeded                    bool
}

// end records that a pod has terminated.
func (m *member) end(now moment) {
	if m.ended == nil {
		m.ended = &sighting{now.earliest, time.Now()}
	}
}

func (a *Auditor) seeMember(pod *corev1.Pod, now moment) {
	m := a.members[pod.UID]
	if m == nil {
		m = &member{name: pod.Namespace + "/" + pod.Name, since: now.earliest}
		switch {
		case isOfJobSet(pod):
			m.ofJobSet(pod)
		case isOfGang(pod):
			m.ref, _ = podgroup.RefOf(pod)
		default:
			return
		}
		a.members[pod.UID] = m
	}
	first := func(s **sighting, isSo bool) {
		if isSo && *s == nil {
			*s = sightingAt(now)
		}
	}
	runs := pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded
	m.life = a.pods[pod.UID]
	first(&m.ungated, m.life != nil)
	first(&m.bound, pod.Spec.NodeName != "")
	first(&m.started, runs || isWaiting(pod))
	first(&m.ran, runs)
}

func (m *member) ofJobSet(pod *corev1.Pod) {
	m.jobSet, m.replicatedJob, m.job = pod.Labels[jobset.JobSetUIDKey], pod.Labels[jobset.ReplicatedJobNameKey], pod.Labels[batchv1.JobNameLabel]
	m.attempt = m.jobSet + "/" + pod.Labels[constants.RestartsKey]
	provider := pod.Annotations[apis.GangProviderAnnotation]
	m.isPlacedElsewhere = provider != "" && provider != "Kube" || pod.Spec.SchedulerName != corev1.DefaultSchedulerName
	if group := pod.Spec.SchedulingGroup; group != nil {
		m.podGroup = client.ObjectKey{Namespace: pod.Namespace, Name: ptr.Deref(group.PodGroupName, "")}
	}
	// A fake node runs that container only if the pod asks for it: without that it ends at once.
	runsInit := pod.Annotations[controlplane.FakeInit] != ""
	if runsInit && slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == barrierContainer }) {
		m.signal = pod.Labels[batchv1.ControllerUidLabel] + "." + pod.Annotations[apis.ReleaseAnnotation]
	}
}

// isWaiting reports whether a pod waits for the others of its group.
func isWaiting(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == barrierContainer && s.State.Running != nil
	})
}

// needs returns how many pods the gangs of a JobSet have: one gang of all pods, of the pods of each ReplicatedJob, or of those of each Job;
// and how many start together.
type needs struct {
	whole              int
	replicatedJob, job map[string]int
	together           int
}

// seeJobSet records the requests of a JobSet. If they change, the smallest counts: the controllers may not have acted on the change.
func (a *Auditor) seeJobSet(js *jobsetapi.JobSet) {
	now := needsOf(js)
	if before, known := a.jobSets[js.UID]; known {
		now.whole, now.together = min(before.whole, now.whole), min(before.together, now.together)
		for name, n := range now.replicatedJob {
			now.replicatedJob[name] = min(before.replicatedJob[name], n)
		}
		for name, n := range now.job {
			now.job[name] = min(before.job[name], n)
		}
	}
	a.jobSets[js.UID] = now
}

func needsOf(js *jobsetapi.JobSet) needs {
	n := needs{replicatedJob: map[string]int{}, job: map[string]int{}}
	isWhole := modeOf(js.Spec.GangConfig, js.Annotations) == jobsetapi.GangModeGang
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		parallelism := ptr.Deref(r.Template.Spec.Parallelism, 1)
		inJob := int(min(parallelism, ptr.Deref(r.Template.Spec.Completions, parallelism)))
		pods := int(r.Replicas) * inJob
		if isWhole {
			n.whole += pods
		}
		switch modeOf(r.GangConfig, r.Template.Annotations) {
		case jobsetapi.GangModeGang:
			n.replicatedJob[r.Name] = pods
		case jobsetapi.GangModeReplicatedGang:
			n.job[r.Name] = inJob
		case jobsetapi.GangModeOff:
		}
		if r.Template.Annotations[apis.GroupStartAnnotation] != "" {
			n.together += pods
		}
	}
	return n
}

func modeOf(config *jobsetapi.GangConfig, annotations map[string]string) jobsetapi.GangMode {
	if config != nil {
		return config.GangMode
	}
	return jobsetapi.GangMode(annotations[apis.GangAnnotation])
}

// gangOf returns the gang of a JobSet that a pod is in, and how many pods that has. They are 0 if it is in none.
func (n *needs) gangOf(m *member) (gang string, pods int) {
	switch {
	case n.whole > 0:
		return m.attempt, n.whole
	case n.replicatedJob[m.replicatedJob] > 0:
		return m.attempt + "/" + m.replicatedJob, n.replicatedJob[m.replicatedJob]
	default:
		return m.attempt + "/" + m.replicatedJob + "/" + m.job, n.job[m.replicatedJob]
	}
}

// partial returns the gangs that started while some of their pods were missing.
func (a *Auditor) partial() []string {
	members := slices.SortedFunc(maps.Values(a.members), func(x, y *member) int { return cmp.Compare(x.name, y.name) })
	return slices.Concat(a.placedInPart(members), a.ungatedInPart(members), a.startedInPart(members))
}

// placedInPart returns the pods that got a node while their gang of a JobSet had fewer pods than it requires.
func (a *Auditor) placedInPart(members []*member) []string {
	if !a.placesGangs {
		return nil
	}
	gangs := map[string][]*member{}
	for _, m := range members {
		n := a.needsOf(m)
		if gang, pods := n.gangOf(m); pods > 0 && !m.isPlacedElsewhere && !a.userGroups[m.podGroup] {
			gangs[gang] = append(gangs[gang], m)
		}
	}
	var found []string
	for _, gang := range slices.Sorted(maps.Keys(gangs)) {
		for _, m := range gangs[gang] {
			n := a.needsOf(m)
			_, pods := n.gangOf(m)
			if there := countAt(gangs[gang], m.bound, (*member).existing); there < pods {
				found = append(found, fmt.Sprintf("gang: pod %s got a node at %d while its gang had %d of %d pods", m.name, m.bound.at, there, pods))
			}
		}
	}
	return found
}

// startedInPart returns the pods whose main containers ran before all pods of their group had started. Once the group of a Job has started,
// pods that the Job replaces do not wait again.
func (a *Auditor) startedInPart(members []*member) []string {
	groups, first := map[string][]*member{}, map[string]*member{}
	for _, m := range members {
		if m.signal == "" {
			continue
		}
		groups[m.attempt] = append(groups[m.attempt], m)
		if isEarlier(m, first[m.signal], ran) {
			first[m.signal] = m
		}
	}
	var found []string
	for _, signal := range slices.Sorted(maps.Keys(first)) {
		m := first[signal]
		pods := a.needsOf(m).together
		if there := countAt(groups[m.attempt], m.ran, (*member).hadStarted); there < pods {
			found = append(found, fmt.Sprintf("group start: pod %s ran at %d when %d of %d pods of its group had started", m.name, m.ran.at, there, pods))
		}
	}
	return found
}

// ungatedInPart returns the gangs of pods that were ungated while fewer pods existed than their quota was admitted for, or while other
// quota Workloads that start with theirs had never held quota.
func (a *Auditor) ungatedInPart(members []*member) []string {
	gangs, first := map[podgroup.Ref][]*member{}, map[*holding]*member{}
	for _, m := range members {
		if m.jobSet != "" {
			continue
		}
		gangs[m.ref] = append(gangs[m.ref], m)
		if h, held := a.payerOf(m); held != nil && !h.isExtra && isEarlier(m, first[held], ungated) {
			first[held] = m
		}
	}
	var found []string
	for _, m := range slices.SortedFunc(maps.Values(first), func(x, y *member) int { return cmp.Compare(x.name, y.name) }) {
		h, held := a.payerOf(m)
		pods := &held.slots[0]
		if there := countAt(gangs[m.ref], m.ungated, (*member).existing); pods.charged[apis.ReservedPodSet][corev1.ResourcePods] == 0 && there < pods.sum() {
			found = append(found, fmt.Sprintf("gang: pod %s was ungated at %d when %d of the %d pods existed that %s was admitted for", m.name, m.ungated.at, there, pods.sum(), h.name))
		}
		for _, b := range held.batches {
			if n := a.heldOf(b, m.ungated.at); m.ungated.at > 0 && n < b.size {
				found = append(found, fmt.Sprintf("gang: pod %s was ungated at %d when %d of %d quota Workloads with %s had held quota", m.name, m.ungated.at, n, b.size, b.key))
			}
		}
	}
	return found
}

// payerOf returns the quota Workload under which a pod of a gang was ungated, and the holding of quota that pays for it. They are nil if none
// does.
func (a *Auditor) payerOf(m *member) (*holder, *holding) {
	if m.life == nil || a.holders[m.life.payer] == nil {
		return nil, nil
	}
	h := a.holders[m.life.payer]
	return h, h.holdingOf(m.life)
}

// heldOf counts the quota Workloads of a batch that had held quota by a resource version.
func (a *Auditor) heldOf(b batch, at uint64) int {
	n := 0
	for _, h := range a.holders {
		if slices.ContainsFunc(h.held, func(held *holding) bool { return held.from <= at && slices.Contains(held.batches, b) }) {
			n++
		}
	}
	return n
}

func (a *Auditor) needsOf(m *member) needs { return a.jobSets[types.UID(m.jobSet)] }

func ran(m *member) *sighting     { return m.ran }
func ungated(m *member) *sighting { return m.ungated }

// isEarlier reports whether a member was sighted so, and before another one, which may be nil.
func isEarlier(m, than *member, of func(*member) *sighting) bool {
	return of(m) != nil && (than == nil || of(m).at < of(than).at)
}

// existing reports whether a member existed at a sighting.
func (m *member) existing(at *sighting) bool { return m.since <= at.at && m.isThere(at) }

// hadStarted reports whether a member had started at a sighting. One that has succeeded still counts.
func (m *member) hadStarted(at *sighting) bool {
	return m.started != nil && m.started.at <= at.at && (m.succeeded || m.isThereWithin(startOnTheWay, at))
}

// isThere reports whether a member had not ended at a sighting. One that had ended shortly before may still have been there for the component
// that decided.
func (m *member) isThere(at *sighting) bool { return m.isThereWithin(onTheWay, at) }

func (m *member) isThereWithin(limit time.Duration, at *sighting) bool {
	return m.ended == nil || m.ended.at > at.at || at.seen.Sub(m.ended.seen) < limit
}

// countAt counts the members that were so at a sighting. What happened while the auditor did not watch counts in favor of Tranche.
func countAt(members []*member, at *sighting, isSo func(*member, *sighting) bool) int {
	if at == nil || at.at == 0 {
		return math.MaxInt
	}
	n := 0
	for _, m := range members {
		if isSo(m, at) {
			n++
		}
	}
	return n
}
