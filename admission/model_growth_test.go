package admission_test

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// This file lets the JobSets of a model grow and shrink: the charge of a stage is divided as the manager does it, missing quota is asked for by
// growths, and quota that is no longer needed is released when its pods have terminated.

// resize gives a ReplicatedJob of some JobSet another number of pods, unless it has succeeded.
func (m *model) resize(t *rapid.T) {
	m.resizes--
	js := m.drawJobSet(t)
	job := &js.spec.ReplicatedJobs[rapid.IntRange(0, len(js.spec.ReplicatedJobs)-1).Draw(t, "job")]
	if js.states[job.Name] == stageplan.Succeeded {
		return
	}
	m.world.resize(js.name, job.Name, rapid.Int32Range(1, 4).Draw(t, "pods"))
}

func (m *model) drawJobSet(t *rapid.T) *fakeJobSet {
	return m.jobSets[rapid.SampledFrom(slices.Sorted(maps.Keys(m.jobSets))).Draw(t, "whose")]
}

// holdingGrowths returns the growths of a JobSet that can be evicted.
func (m *model) holdingGrowths(js *fakeJobSet) []string {
	var all []string
	for i := range js.plan.Stages {
		for _, name := range m.growths[js.workload(i)] {
			if m.mayUse(name) {
				all = append(all, name)
			}
		}
	}
	return all
}

func (m *model) mayUse(growth string) bool {
	wl := m.workloads[keyOf(growth)]
	return wl.Status.Admission != nil && !isLeaving(wl)
}

// divide computes which quota Workloads pay for the pods of a stage that holds quota, by pod set.
func (m *model) divide(js *fakeJobSet, i int) []elastic.Size {
	stage := &js.plan.Stages[i]
	var sizes []elastic.Size
	for k := range stage.PodSets {
		name := stage.PodSets[k].Name
		var growths []elastic.Growth
		for _, growth := range m.growths[js.workload(i)] {
			wl := m.workloads[keyOf(growth)]
			growths = append(growths, elastic.Growth{HoldsQuota: wl.Status.Admission != nil, Held: elastic.Held(wl, name), MayRun: m.mayUse(growth)})
		}
		want := stage.PodSets[k].Count
		if js.states[name] == stageplan.Succeeded {
			want = 0
		}
		sizes = append(sizes, elastic.Divide(want, elastic.Held(m.workloads[keyOf(js.workload(i))], name), 1, growths))
	}
	return sizes
}

// tend updates the growths of the stages of a JobSet: they ask for the pods that are wanted now, and for no others.
func (m *model) tend(js *fakeJobSet) {
	for i := range js.plan.Stages {
		stage := js.workload(i)
		switch wl := m.workloads[keyOf(stage)]; {
		case isFinished(wl):
			m.dropGrowths(stage)
		case wl.Status.Admission == nil:
			m.dropGrowths(stage)
			m.fit(js, i)
		case m.evicting[js.name]:
			for _, growth := range slices.Clone(m.growths[stage]) {
				if m.workloads[keyOf(growth)].Status.Admission == nil {
					m.dropGrowth(stage, growth)
				}
			}
		default:
			m.askFor(js, i)
		}
	}
}

// fit lets a stage that holds nothing ask for all of its pods.
func (m *model) fit(js *fakeJobSet, i int) {
	asks := asksOf(&js.plan.Stages[i], func(k int) int32 { return js.plan.Stages[i].PodSets[k].Count })
	if wl := m.workloads[keyOf(js.workload(i))]; countsOf(wl.Spec.PodSets) != countsOf(asks) {
		m.change(wl.Name, func(wl *kueue.Workload) {
			wl.Spec.PodSets = asks
			wl.Status.ReclaimablePods = nil
		})
	}
}

// askFor lets growths ask for the missing pods of a stage that holds quota.
func (m *model) askFor(js *fakeJobSet, i int) {
	stage, sizes := js.workload(i), m.divide(js, i)
	for g, growth := range slices.Clone(m.growths[stage]) {
		wl := m.workloads[keyOf(growth)]
		asks := asksOf(&js.plan.Stages[i], func(k int) int32 { return sizes[k].Growths[g] })
		switch {
		case wl.Status.Admission != nil:
		case len(asks) == 0:
			m.dropGrowth(stage, growth)
		case countsOf(wl.Spec.PodSets) != countsOf(asks):
			m.change(growth, func(wl *kueue.Workload) { wl.Spec.PodSets = asks })
		}
	}
	if more := asksOf(&js.plan.Stages[i], func(k int) int32 { return sizes[k].Missing }); len(more) > 0 && js.isOpen(i) {
		m.addGrowth(js, i, more)
	}
}

func (m *model) addGrowth(js *fakeJobSet, i int, podSets []kueue.PodSet) {
	base := m.workloads[keyOf(js.workload(i))]
	m.grown++
	wl := newWorkload(fmt.Sprintf("%s-growth-%d", base.Name, m.grown), string(base.Spec.QueueName))
	wl.Labels = maps.Clone(base.Labels)
	wl.Labels[apis.GrowthLabel] = "1"
	wl.Annotations = map[string]string{apis.FlavorsAnnotation: elastic.Flavors(base), apis.AttemptAnnotation: base.Annotations[apis.AttemptAnnotation]}
	wl.OwnerReferences = base.OwnerReferences
	wl.CreationTimestamp = metav1.NewTime(m.now())
	wl.Spec.Priority, wl.Spec.PodSets = base.Spec.Priority, podSets
	m.growths[base.Name] = append(m.growths[base.Name], wl.Name)
	m.put(wl)
}

func (m *model) dropGrowth(stage, growth string) {
	m.growths[stage] = slices.DeleteFunc(m.growths[stage], func(name string) bool { return name == growth })
	delete(m.refusals, keyOf(growth))
	m.remove(growth)
}

func (m *model) dropGrowths(stage string) {
	for _, growth := range slices.Clone(m.growths[stage]) {
		m.dropGrowth(stage, growth)
	}
}

// endings returns the pods that may terminate because a running stage has become smaller, or a growth was evicted.
func (m *model) endings(js *fakeJobSet) []func() {
	var all []func()
	for i := range js.plan.Stages {
		stage := js.workload(i)
		if wl := m.workloads[keyOf(stage)]; wl.Status.Admission == nil || isFinished(wl) {
			continue
		}
		sizes := m.divide(js, i)
		all = append(all, m.reclaims(js, i, stage, func(k int) int32 { return sizes[k].Base })...)
		for g, growth := range m.growths[stage] {
			pays := slices.ContainsFunc(sizes, func(z elastic.Size) bool { return z.Growths[g] > 0 })
			switch {
			case m.workloads[keyOf(growth)].Status.Admission == nil:
			case !pays:
				all = append(all, func() { m.dropGrowth(stage, growth) })
			case isLeaving(m.workloads[keyOf(growth)]):
				all = append(all, func() {
					m.leave(growth)
					m.change(growth, func(wl *kueue.Workload) { wl.Status.ReclaimablePods = nil })
				})
			default:
				all = append(all, m.reclaims(js, i, growth, func(k int) int32 { return sizes[k].Growths[g] })...)
			}
		}
	}
	return all
}

// reclaims marks the pods that a quota Workload pays for and does not need as reclaimable.
func (m *model) reclaims(js *fakeJobSet, i int, name string, pays func(podSet int) int32) []func() {
	wl := m.workloads[keyOf(name)]
	var list []kueue.ReclaimablePod
	isNews := false
	for k := range js.plan.Stages[i].PodSets {
		podSet := js.plan.Stages[i].PodSets[k].Name
		if count := elastic.Charged(wl, podSet, 0) - pays(k); count > 0 {
			list = append(list, kueue.ReclaimablePod{Name: kueue.NewPodSetReference(podSet), Count: count})
			isNews = isNews || count != elastic.Reclaimable(wl, podSet)
		}
	}
	if !isNews {
		return nil
	}
	return []func(){func() { m.change(name, func(wl *kueue.Workload) { wl.Status.ReclaimablePods = list }) }}
}

// checkCharges checks that exactly the reservations of the objects are charged: including growths, and less the reclaimable pods (I4).
func (m *model) checkCharges(t *rapid.T) {
	held := ledger.TotalsOf(maps.Values(m.workloads))
	for queue, charged := range m.charges() {
		for fr, got := range charged {
			if want := held[queue][fr]; got != want {
				t.Fatalf("%d thousandths of %v are charged in %s, want %d: what the quota Workloads hold", got, fr, queue, want)
			}
		}
	}
}

func asksOf(stage *stageplan.Stage, count func(podSet int) int32) []kueue.PodSet {
	var all []kueue.PodSet
	for k := range stage.PodSets {
		if p := &stage.PodSets[k]; count(k) > 0 {
			all = append(all, kueue.PodSet{Name: kueue.NewPodSetReference(p.Name), Count: count(k), Template: *p.Template})
		}
	}
	return all
}

func countsOf(podSets []kueue.PodSet) string {
	text := ""
	for i := range podSets {
		text += fmt.Sprintf("%s=%d ", podSets[i].Name, podSets[i].Count)
	}
	return text
}
