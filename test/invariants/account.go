package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// An account has the pods that are paid for together, and the holdings of quota that pay for them: those of one pod set of a JobSet or Job, or of one quota
// Workload of a gang.
type account struct {
	name    string
	crew    []*life
	sources []source
}

// A source is a holding of quota that pays for pods of some pod sets.
type source struct {
	*holding
	podSet kueue.PodSetReference // empty for all
}

// overdrawn returns the accounts whose live pods were at some moment more, or asked for more accelerators, than was charged for them. Pods for which no quota
// Workload pays at all are strays instead.
func (a *Auditor) overdrawn() []string {
	byOwner, accounts := a.byOwner(), map[ledger.Account]*account{}
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		l := a.pods[uid]
		if l.group != "" || l.ungated == 0 || !a.isPaid(l, byOwner) {
			continue
		}
		if accounts[l.account] == nil {
			accounts[l.account] = &account{}
		}
		accounts[l.account].crew = append(accounts[l.account].crew, l)
	}
	for _, uid := range slices.Sorted(maps.Keys(a.holders)) {
		h := a.holders[uid]
		if h.isOfKueueJob {
			continue // Kueue replaces pods that still terminate
		}
		h.fund(accounts[ledger.Account{Payer: uid}], "")
		for _, podSet := range h.podSets {
			h.fund(accounts[ledger.Account{Payer: types.UID(h.jobSet), PodSet: kueue.PodSetReference(podSet)}], kueue.PodSetReference(podSet))
		}
	}
	var found []string
	for _, x := range slices.SortedFunc(maps.Values(accounts), func(x, y *account) int { return cmp.Compare(x.name, y.name) }) {
		if excess := a.excessOf(x); excess != "" && len(x.sources) > 0 {
			found = append(found, fmt.Sprintf("I9: %s %s", x.name, excess))
		}
	}
	return found
}

// fund adds what a quota Workload has held to an account, which may be nil.
func (h *holder) fund(x *account, podSet kueue.PodSetReference) {
	if x == nil {
		return
	}
	x.name = h.name
	for _, held := range h.held {
		x.sources = append(x.sources, source{held, podSet})
	}
}

// excessOf describes the first moment at which the live pods of an account exceeded what was charged. It is empty if there is none. While quota Workloads were
// not watched, what was charged is not known, but at the end of that time it is.
func (a *Auditor) excessOf(x *account) string {
	moments := map[uint64]struct{}{}
	for _, l := range x.crew {
		moments[l.ungated] = struct{}{}
	}
	for _, s := range x.sources {
		for i := range s.slots {
			moments[s.slots[i].from] = struct{}{}
		}
	}
	for _, gap := range a.gaps {
		maps.DeleteFunc(moments, func(at uint64, _ struct{}) bool { return gap.covers(span{at, at + 1}) })
		moments[gap.to] = struct{}{}
	}
	for _, at := range slices.Sorted(maps.Keys(moments)) {
		asked, charged, living := ledger.Amounts{}, ledger.Amounts{}, []string{}
		for _, l := range x.crew {
			if l.ungated <= at && (l.span.to == 0 || l.span.to > at) {
				asked.Add(a.cost(l), 1)
				living = append(living, l.name)
			}
		}
		for _, s := range x.sources {
			charged.Add(s.chargedAt(at), 1)
		}
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			if asked[name] > charged[name] {
				return fmt.Sprintf("was charged at %d for %d thousandths of %s, and its live pods asked for %d: %v", at, charged[name], name, asked[name], living)
			}
		}
	}
	return ""
}

// chargedAt returns what a source pays for at a resource version, and for how many pods.
func (s source) chargedAt(at uint64) ledger.Amounts {
	if s.from > at || s.to != 0 && s.to <= at {
		return nil
	}
	var now *slots
	for i := range s.slots {
		if i == 0 || s.slots[i].from <= at {
			now = &s.slots[i]
		}
	}
	all := ledger.Amounts{}
	for podSet, amounts := range now.charged {
		if s.podSet == "" || s.podSet == podSet {
			all.Add(amounts, 1)
		}
	}
	return all
}

// cost returns what a pod asks for: itself, and its accelerators.
func (a *Auditor) cost(l *life) ledger.Amounts {
	all := a.rules.Accelerators(l.pod, a.claims[l.pod.Namespace])
	all[corev1.ResourcePods] = 1000
	return all
}

// seeClaim records the devices of a ResourceClaim, which never change.
func (a *Auditor) seeClaim(claim *resourcev1.ResourceClaim) {
	if a.claims[claim.Namespace] == nil {
		a.claims[claim.Namespace] = map[string]device.Claim{}
	}
	a.claims[claim.Namespace][claim.Name] = device.Claim{Controller: metav1.GetControllerOf(claim), Spec: claim.Spec}
}

// seeDeviceClass records what is charged for the extended resource of a DeviceClass, also after its end.
func (a *Auditor) seeDeviceClass(class *resourcev1.DeviceClass) {
	a.classes[class.Name] = class
	a.rules.Extended = a.rules.Devices.Extended(slices.Collect(maps.Values(a.classes)))
}

// isHeld reports whether a Job may have pods only while quota is held for it.
func isHeld(labels map[string]string) bool {
	return labels[apis.HoldLabel] == apis.HoldValue || labels[apis.HoldLabel] == apis.HoldQueued
}
