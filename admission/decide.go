package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// pass looks at everybody in a line who is awake, first things first.
func (e *Engine) pass(q *clusterQueue) []Decision {
	var decisions []Decision
	for {
		item, ok := q.line.Next()
		if !ok {
			return decisions
		}
		l := e.look(e.stages[item.Key])
		if refusal := e.check(l); refusal != nil {
			decisions = append(decisions, e.refuse(l, item, refusal)...)
			continue
		}
		decisions = append(decisions, e.admit(l))
	}
}

// admit charges a stage that has passed all checks.
func (e *Engine) admit(l *look) Decision {
	e.lastDecision++
	id, s := e.lastDecision, l.s
	e.inFlight[id] = s.key
	s.assumed = &assignment{decision: id, clusterQueue: l.q.name, usage: l.usage}
	admit := Admit{ID: id, Stage: s.key, UID: s.uid, Admission: l.admission()}
	if l.j != nil {
		admit.JobSet, admit.StageName = l.j.key.Name, l.j.plan.Stages[s.index].Name
	}
	e.account(s)
	return admit
}

// admission is what the choice means for the pod sets.
func (l *look) admission() kueue.Admission {
	a := kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(l.q.name)}
	for i := range l.s.podSets {
		p := &l.s.podSets[i]
		count := p.Count
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Name: kueue.PodSetReference(p.Name), Count: &count})
	}
	for i := range l.items {
		item, assignment := &l.items[i], &a.PodSetAssignments[l.items[i].PodSet]
		for _, name := range slices.Sorted(maps.Keys(item.Request)) {
			if assignment.Flavors == nil {
				assignment.Flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference{}
				assignment.ResourceUsage = corev1.ResourceList{}
			}
			assignment.Flavors[name] = item.Options[l.choice[i]]
			assignment.ResourceUsage[name] = item.Request[name].Quantity(name)
		}
	}
	return a
}

// refuse lets a stage and all of its shape sleep, and tells those who have not heard this refusal.
func (e *Engine) refuse(l *look, item queue.Item, refusal *Refusal) []Decision {
	var toTell []StageKey
	switch l.effect {
	case waitsForChange:
		toTell = l.q.line.Park(item.Key, l.topics)
	case holdsUpOthers:
		toTell = l.q.line.Block(item.Key, l.topics)
	case waitsBehind:
		toTell = l.q.line.ParkBehind(item.Key)
	}
	var decisions []Decision
	if !slices.Contains(toTell, item.Key) {
		toTell = append(toTell, item.Key)
	}
	for _, key := range toTell {
		if s := e.stages[key]; s != nil && s.told != *refusal {
			s.told = *refusal
			decisions = append(decisions, Refuse{Stage: key, UID: s.uid, Refusal: *refusal})
		}
	}
	return decisions
}

// An effect is what a refusal means for the line.
type effect int

const (
	waitsForChange effect = iota
	holdsUpOthers
	waitsBehind
)

// A look is one stage in front of the checks, with what they have found out so far.
type look struct {
	s      *stage
	q      *clusterQueue
	lq     *localQueue
	j      *jobSet
	policy string

	items []flavor.Item
	// fitting are the choices for which there is quota now.
	fitting []flavor.Choice
	// choice that the last check has made, and what is used under it.
	choice flavor.Choice
	usage  quota.Usage

	// effect and topics say what a refusal means, and what must change before it makes sense to look again.
	effect effect
	topics []quota.FlavorResource
}

func (e *Engine) look(s *stage) *look {
	lq := e.localQueue(s.localQueue)
	q := e.clusterQueue(lq.clusterQueue)
	j := e.jobSets[s.owner]
	return &look{s: s, q: q, lq: lq, j: j, policy: e.policy(q, j)}
}

// hasPlan tells whether there is more than one stage to think about.
func (l *look) hasPlan() bool { return l.j != nil && len(l.j.plan.Stages) > 1 }
