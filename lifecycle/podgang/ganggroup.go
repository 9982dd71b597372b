package podgang

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// readGroup reads which gangs start together with this one.
func (g *Gang) readGroup(problems *Problems) {
	if !g.hasSettings() {
		return
	}
	text, where := g.setting("groups", problems)
	if text == "" {
		return
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		addf(problems, `%s is %q: give a JSON list of names such as ["%s/other","%s"]`, where, brief(text), g.Namespace, g.Full())
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		namespace, rest, ok := strings.Cut(name, "/")
		if !ok || !isName(namespace) || !isName(rest) {
			addf(problems, "%s names %q: give each gang as NAMESPACE/NAME", where, brief(name))
			return
		}
	}
	switch {
	case len(names) > apis.MaxTogether:
		addf(problems, "%s names %d gangs: at most %d can start together", where, len(names), apis.MaxTogether)
	case len(names) > 0 && !slices.Contains(names, g.Full()):
		addf(problems, "%s does not name the gang %q itself: add it", where, g.Full())
	case len(names) > 1:
		g.GangGroup = names
	}
}

// isName reports whether a text is short and free of characters that would have to be escaped, as names are.
func isName(text string) bool {
	const longest = 253
	return text != "" && len(text) <= longest && strings.Trim(text, "-_.") == text && !strings.ContainsFunc(text, func(c rune) bool { return !isLabelRune(c) })
}

// Peers returns the gangs that start together with this one, without itself.
func (g *Gang) Peers() []Ref {
	var peers []Ref
	for _, full := range g.GangGroup {
		if namespace, name, _ := strings.Cut(full, "/"); full != g.Full() {
			peers = append(peers, Ref{g.Kind, namespace, name})
		}
	}
	return peers
}

// admitsInParts reports whether the gang gathers its quota. A gang of a GangGroup does not: each could keep what the other gathers, and no order of
// gangs would be safe.
func (g *Gang) admitsInParts() bool { return g.NonStrict && len(g.GangGroup) == 0 }

// gangGroupID is equal for all gangs that name the same gangs, and differs for all others.
func (g *Gang) gangGroupID() string {
	return digest(append([]string{string(g.Kind)}, g.GangGroup...)...)
}

// A Peer is a peer: the relevant state of another gang of the same GangGroup.
type Peer struct {
	Ref
	// Exists is true if there is a PodGroup or a pod of it, and IsWhole if all pods that start together exist.
	Exists, IsWhole bool
	// Problem is the problem of the gang, or empty.
	Problem string
	// GangGroup are the gangs that it names itself.
	GangGroup []string
	// IsAdmitted is true if all quota that it needs to start is admitted, or if it has started.
	IsAdmitted bool
	// HasStarted is true if it is independent: it is no longer admitted together with others.
	HasStarted bool
	// HasEnded is true if it has finished, and none of its pods runs or waits.
	HasEnded bool
	// isPast is true if it has started together with this gang since this one asked for quota. This gang then does not wait for it.
	isPast bool
}

// markPast marks the other gangs that have started since this gang asked for quota, which it did when all had agreed. Their pods may have
// terminated before a pod of this gang was ungated, because this gang was preempted in between:
//
//	a, b admitted -> a started -> b preempted -> a succeeded -> b admitted alone
//
// A gang of another namespace counts only if it names the same gangs: otherwise a tenant could learn which gangs run there. The quota Workload of this
// gang names the others that have started, which is relied on if neither pods nor quota Workloads of those are left.
func (t *stepBuilder) markPast() {
	if len(t.initial) == 0 {
		return
	}
	var recorded []string
	for _, w := range t.initial {
		recorded = append(recorded, strings.Split(w.Annotations[apis.StartedTogetherAnnotation], ",")...)
	}
	t.Peers = slices.Clone(t.Peers)
	for _, ref := range t.Gang.Peers() {
		isRecorded := slices.Contains(recorded, ref.Full())
		i := slices.IndexFunc(t.Peers, func(p Peer) bool { return p.Ref == ref })
		switch {
		case i < 0 && !isRecorded:
			continue
		case i < 0:
			i = len(t.Peers)
			t.Peers = append(t.Peers, Peer{Ref: ref})
		}
		p := &t.Peers[i]
		isAgreed := p.Namespace == t.Gang.Namespace || slices.Equal(p.GangGroup, t.Gang.GangGroup)
		switch {
		case (p.HasStarted || p.HasEnded) && isAgreed:
			p.isPast = true
		case isRecorded && !p.IsWhole:
			p.isPast, p.IsAdmitted = true, true
		}
	}
}

// past names the others that have started since this gang asked for quota.
func (t *stepBuilder) past() string {
	var names []string
	for i := range t.Peers {
		if t.Peers[i].isPast {
			names = append(names, t.Peers[i].Full())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// peerConflict returns which peer prevents the gangs from asking for quota together, or "" if none does. All of them have to name the same gangs, so
// that no gang depends on one that has not agreed. Until a gang of another namespace names this one, its owner has agreed to nothing, and the
// message does not reveal whether the gang exists.
func (g *Gang) peerConflict(peers []Peer) string {
	for _, ref := range g.Peers() {
		i := slices.IndexFunc(peers, func(p Peer) bool { return p.Ref == ref })
		if i >= 0 && peers[i].isPast {
			continue
		}
		hasAgreed := i >= 0 && peers[i].Exists && slices.Equal(peers[i].GangGroup, g.GangGroup)
		switch {
		case !hasAgreed && ref.Namespace != g.Namespace:
			return fmt.Sprintf("the gang starts together with gang %q of another namespace, which does not exist there or does not name the same gangs: "+
				"make annotation groups equal on all of them, or take it out", ref.Full())
		case i < 0 || !peers[i].Exists:
			return fmt.Sprintf("the gang starts together with gang %q, which does not exist: create it, or take it out of annotation groups", ref.Full())
		case !slices.Equal(peers[i].GangGroup, g.GangGroup):
			return fmt.Sprintf("the gang starts together with gang %q, which does not name the same gangs: make annotation groups equal", ref.Full())
		case peers[i].Problem != "":
			return fmt.Sprintf("the gang starts together with gang %q, with which something is wrong", ref.Full())
		case !peers[i].IsWhole:
			return fmt.Sprintf("the gang starts together with gang %q, not all of whose pods are there", ref.Full())
		}
	}
	return ""
}

// unstarted counts the gangs that are admitted together: this one, and the peers that have not started. A started gang is independent.
func (g *Gang) unstarted(peers []Peer) int {
	n := len(g.GangGroup)
	for _, ref := range g.Peers() {
		if slices.ContainsFunc(peers, func(p Peer) bool { return p.Ref == ref && (p.HasStarted || p.isPast) }) {
			n--
		}
	}
	return n
}

// missing names a peer that is not admitted, or is empty.
func (g *Gang) missing(peers []Peer) string {
	for _, ref := range g.Peers() {
		if !slices.ContainsFunc(peers, func(p Peer) bool { return p.Ref == ref && p.IsAdmitted }) {
			return ref.Full()
		}
	}
	return ""
}

// PeerOf returns the state of a gang that its peers need.
func PeerOf(s *Snapshot) Peer {
	t := newStepBuilder(s)
	p := Peer{
		Ref: s.Gang.Ref, Exists: s.Gang.Object != nil || len(s.Gang.All()) > 0, Problem: s.Problems.String(), GangGroup: s.Gang.GangGroup,
		IsWhole: len(t.waiting) >= int(s.Gang.Min-t.active-t.succeeded) || t.reserves() || t.isStarted(),
	}
	isStarted := slices.ContainsFunc(slices.Concat(t.initial, t.finishedInitial), func(w *kueue.Workload) bool { return hasStarted(w) || round(w) > 0 })
	p.HasStarted = t.startedOnce()
	p.HasEnded = len(t.initial) == 0 && (len(t.finishedInitial) > 0 || t.endOfPods() != "") && t.isAlone()
	isAdmitted := len(t.initial) > 0 && t.allAdmitted()
	p.IsAdmitted = isStarted || isAdmitted
	return p
}
