package podgang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A Peer is the relevant state of another gang of the same GangGroup.
type Peer struct {
	podgroup.Ref
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
func (s *gangState) markPast() {
	if len(s.initial) == 0 {
		return
	}
	var recorded []string
	for _, w := range s.initial {
		recorded = append(recorded, strings.Split(w.Annotations[apis.StartedTogetherAnnotation], ",")...)
	}
	s.Peers = slices.Clone(s.Peers)
	for _, ref := range s.Gang.Peers() {
		isRecorded := slices.Contains(recorded, ref.Full())
		p := s.peer(ref)
		switch {
		case p == nil && !isRecorded:
			continue
		case p == nil:
			s.Peers = append(s.Peers, Peer{Ref: ref})
			p = &s.Peers[len(s.Peers)-1]
		}
		isAgreed := p.Namespace == s.Gang.Namespace || slices.Equal(p.GangGroup, s.Gang.GangGroup)
		switch {
		case (p.HasStarted || p.HasEnded) && isAgreed:
			p.isPast = true
		case isRecorded && !p.IsWhole:
			p.isPast, p.IsAdmitted = true, true
		}
	}
}

// past names the peers that have started since this gang asked for quota.
func (s *Snapshot) past() string {
	var names []string
	for i := range s.Peers {
		if s.Peers[i].isPast {
			names = append(names, s.Peers[i].Full())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// peer returns the state of a peer, or nil if nothing is known about it.
func (s *Snapshot) peer(ref podgroup.Ref) *Peer {
	for i := range s.Peers {
		if s.Peers[i].Ref == ref {
			return &s.Peers[i]
		}
	}
	return nil
}

// peerConflict returns which peer prevents the gangs from asking for quota together, or "" if none does. All of them have to name the same gangs, so
// that no gang depends on one that has not agreed. Until a gang of another namespace names this one, its owner has agreed to nothing, and the
// message does not reveal whether the gang exists.
func (s *Snapshot) peerConflict() string {
	for _, ref := range s.Gang.Peers() {
		p := s.peer(ref)
		if p != nil && p.isPast {
			continue
		}
		exists := p != nil && p.Exists
		isAgreed := exists && slices.Equal(p.GangGroup, s.Gang.GangGroup)
		switch {
		case !isAgreed && ref.Namespace != s.Gang.Namespace:
			return fmt.Sprintf("peer gang %q of another namespace does not exist or lists other gangs: set the same value of annotation %s on all gangs, "+
				"or remove the gang from that list", ref.Full(), podgroup.GroupsAnnotation)
		case !exists:
			return fmt.Sprintf("peer gang %q does not exist: create it, or remove it from annotation %s", ref.Full(), podgroup.GroupsAnnotation)
		case !isAgreed:
			return fmt.Sprintf("peer gang %q lists other gangs: set the same value of annotation %s on both gangs", ref.Full(), podgroup.GroupsAnnotation)
		case p.Problem != "":
			return fmt.Sprintf("peer gang %q is misconfigured: fix that gang", ref.Full())
		case !p.IsWhole:
			return fmt.Sprintf("not all pods of peer gang %q exist", ref.Full())
		}
	}
	return ""
}

// unstarted counts the gangs that are admitted together: this one, and the peers that have not started. A started gang is independent.
func (s *Snapshot) unstarted() int {
	n := len(s.Gang.GangGroup)
	for _, ref := range s.Gang.Peers() {
		if p := s.peer(ref); p != nil && (p.HasStarted || p.isPast) {
			n--
		}
	}
	return n
}

// unadmittedPeer names a peer that is not admitted, or is empty.
func (s *Snapshot) unadmittedPeer() string {
	for _, ref := range s.Gang.Peers() {
		if p := s.peer(ref); p == nil || !p.IsAdmitted {
			return ref.Full()
		}
	}
	return ""
}

// PeerOf returns the state of a gang that its peers need.
func PeerOf(s *Snapshot) Peer {
	state, gang := stateOf(s), s.Gang
	hasStarted := slices.ContainsFunc(slices.Concat(state.initial, state.finishedInitial), hasEverStarted)
	return Peer{
		Ref: gang.Ref, Exists: gang.Object != nil || len(gang.All()) > 0, Problem: s.Problems.String(), GangGroup: gang.GangGroup,
		IsWhole:    len(state.waiting) >= int(gang.Min-state.active-state.succeeded) || gang.Reserves() || state.isStarted(),
		IsAdmitted: hasStarted || len(state.initial) > 0 && state.allAdmitted(),
		HasStarted: state.startedOnce(),
		HasEnded:   len(state.initial) == 0 && (len(state.finishedInitial) > 0 || endOfPods(gang) != "") && state.isAlone(),
	}
}
