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

// readPeers gives the snapshot a Peer for each gang of the GangGroup, also for gangs about which nothing is known. It marks those that have
// started since this gang asked for quota, which it did when all had agreed. Their pods may have terminated before a pod of this gang was
// ungated, because this gang was preempted in between:
//
//	a, b admitted -> a started -> b preempted -> a succeeded -> b admitted alone
//
// A gang of another namespace counts only if it names the same gangs: otherwise a tenant could learn which gangs run there. The quota Workload of this
// gang names the others that have started, which is relied on if neither pods nor quota Workloads of those are left.
func (s *gangState) readPeers() {
	var recorded []string
	for _, w := range s.initial {
		recorded = append(recorded, strings.Split(w.Annotations[apis.StartedTogetherAnnotation], ",")...)
	}
	known := s.Peers
	s.Peers = nil
	for _, ref := range s.Gang.Peers() {
		p := Peer{Ref: ref}
		if i := slices.IndexFunc(known, func(k Peer) bool { return k.Ref == ref }); i >= 0 {
			p = known[i]
		}
		isAgreed := p.Namespace == s.Gang.Namespace || slices.Equal(p.GangGroup, s.Gang.GangGroup)
		switch {
		case len(s.initial) == 0:
		case (p.HasStarted || p.HasEnded) && isAgreed:
			p.isPast = true
		case slices.Contains(recorded, ref.Full()) && !p.IsWhole:
			p.isPast, p.IsAdmitted = true, true
		}
		s.Peers = append(s.Peers, p)
	}
}

// past names the peers that have started since this gang asked for quota, in the order of the GangGroup.
func (s *gangState) past() string {
	var names []string
	for i := range s.Peers {
		if s.Peers[i].isPast {
			names = append(names, s.Peers[i].Full())
		}
	}
	return strings.Join(names, ",")
}

// peerConflict returns which peer prevents the gangs from asking for quota together, or "" if none does. All of them have to name the same gangs, so
// that no gang depends on one that has not agreed. Until a gang of another namespace names this one, its owner has agreed to nothing, and the
// message does not reveal whether the gang exists.
func (s *gangState) peerConflict() string {
	for i := range s.Peers {
		p := &s.Peers[i]
		isAgreed := p.Exists && slices.Equal(p.GangGroup, s.Gang.GangGroup)
		switch {
		case p.isPast:
		case !isAgreed && p.Namespace != s.Gang.Namespace:
			return fmt.Sprintf("peer gang %q of another namespace does not exist or lists other gangs: set the same value of annotation %s on all gangs, "+
				"or remove the gang from that list", p.Full(), podgroup.GroupsAnnotation)
		case !p.Exists:
			return fmt.Sprintf("peer gang %q does not exist: create it, or remove it from annotation %s", p.Full(), podgroup.GroupsAnnotation)
		case !isAgreed:
			return fmt.Sprintf("peer gang %q lists other gangs: set the same value of annotation %s on both gangs", p.Full(), podgroup.GroupsAnnotation)
		case p.Problem != "":
			return fmt.Sprintf("peer gang %q is misconfigured: fix that gang", p.Full())
		case !p.IsWhole:
			return fmt.Sprintf("not all pods of peer gang %q exist", p.Full())
		}
	}
	return ""
}

// unstarted counts the gangs that are admitted together: this one, and the peers that have not started. A started gang is independent.
func (s *gangState) unstarted() int {
	n := len(s.Gang.GangGroup)
	for i := range s.Peers {
		if s.Peers[i].HasStarted || s.Peers[i].isPast {
			n--
		}
	}
	return n
}

// unadmittedPeer names a peer that is not admitted, or is empty.
func (s *gangState) unadmittedPeer() string {
	for i := range s.Peers {
		if !s.Peers[i].IsAdmitted {
			return s.Peers[i].Full()
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
