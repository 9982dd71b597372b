package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/podstate"
)

// A PodRow is a pod of a JobSet.
type PodRow struct {
	Name  string `json:"name"`
	Stage string `json:"stage"`
	Phase string `json:"phase"`
	Node  string `json:"node,omitempty"`
	// Ready counts the containers that are ready, of all Containers.
	Ready      int       `json:"ready"`
	Containers int       `json:"containers"`
	Restarts   int32     `json:"restarts"`
	Created    time.Time `json:"created"`
	// Why is why it is not ready, or empty.
	Why string `json:"why,omitempty"`
}

// A PodCount counts the pods of a stage.
type PodCount struct {
	Stage string `json:"stage"`
	// Phases counts the pods in each phase, and Terminating those that are being deleted.
	Phases map[string]int `json:"phases"`
	Ready  int            `json:"ready"`
	Nodes  int            `json:"nodes"`
}

// A PodsAnswer is a page of the pods of a JobSet, or of one of its stages. Those that are not ready come first.
type PodsAnswer struct {
	Page[PodRow]
	// Counts counts the pods of each stage that has some.
	Counts []PodCount `json:"counts"`
	// Why has a sentence for each reason why pods are missing or not ready.
	Why []string `json:"why,omitempty"`
	// Gaps are why something is not shown.
	Gaps []string `json:"gaps,omitempty"`
}

// terminating is what takes the place of the phase of a pod that is being deleted.
const terminating = "Terminating"

// Pods collects the pods of a JobSet, or of one of its stages. It keeps a row of each.
type Pods struct {
	// Reasons has why pods are not ready, and Lacking the Jobs without all their pods.
	Reasons podstate.Reasons
	Lacking podstate.Lacking
	// stageOf has the stage of each ReplicatedJob that counts.
	stageOf map[string]string
	stages  []string
	rows    []PodRow
}

// NewPods returns an empty collection for a stage of a JobSet, or for all stages if it is empty. It is nil if the JobSet has no such stage.
func NewPods(js *jobsetapi.JobSet, stage string) *Pods {
	p := &Pods{stageOf: map[string]string{}}
	plan, err := planOf(js)
	if err != nil {
		return p // such a JobSet has no pods
	}
	for i := range plan.Stages {
		st := &plan.Stages[i]
		if stage != "" && st.Name != stage {
			continue
		}
		p.stages = append(p.stages, st.Name)
		for _, name := range st.ReplicatedJobs {
			p.stageOf[name] = st.Name
		}
	}
	if stage != "" && len(p.stages) == 0 {
		return nil
	}
	return p
}

// ReplicatedJobs returns the names of the ReplicatedJobs whose pods count.
func (p *Pods) ReplicatedJobs() []string {
	var names []string
	for name := range p.stageOf {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Add adds a pod.
func (p *Pods) Add(pod *corev1.Pod) {
	stage, counts := p.stageOf[pod.Labels[jobset.ReplicatedJobNameKey]]
	if !counts {
		return
	}
	row := PodRow{
		Why: shortened(p.Reasons.Add(pod)), Name: pod.Name, Stage: stage, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName, Containers: len(pod.Spec.Containers), Created: pod.CreationTimestamp.Time,
	}
	if pod.DeletionTimestamp != nil {
		row.Phase = terminating
	}
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			row.Restarts += all[i].RestartCount
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Ready {
			row.Ready++
		}
	}
	p.rows = append(p.rows, row)
}

// AddJob adds a Job.
func (p *Pods) AddJob(job *batchv1.Job) {
	if _, counts := p.stageOf[job.Labels[jobset.ReplicatedJobNameKey]]; counts {
		p.Lacking.Add(job)
	}
}

// Answer returns a page.
func (p *Pods) Answer(w Window) PodsAnswer {
	slices.SortFunc(p.rows, func(a, b PodRow) int {
		return cmp.Or(cmp.Compare(podOrder(&a), podOrder(&b)), strings.Compare(a.Name, b.Name))
	})
	all := func(*PodRow) bool { return true }
	rows := func(yield func(int, *PodRow) bool) {
		for i := range p.rows {
			if !yield(i, &p.rows[i]) {
				return
			}
		}
	}
	return PodsAnswer{Page: pageOf(w, rows, all, func(_ int, row *PodRow) PodRow { return *row }), Counts: p.counts()}
}

// podOrder returns the place of a pod: what is not ready comes first, then what has failed, then what runs, then what has ended.
func podOrder(row *PodRow) int {
	switch {
	case row.Why != "":
		return 0
	case row.Phase == string(corev1.PodFailed):
		return 1
	case row.Phase == string(corev1.PodSucceeded):
		return 3
	}
	return 2
}

// counts returns the pods of each stage, in the order of the stages.
func (p *Pods) counts() []PodCount {
	counts := map[string]*PodCount{}
	nodes := map[string]map[string]bool{}
	for i := range p.rows {
		row := &p.rows[i]
		c := counts[row.Stage]
		if c == nil {
			c = &PodCount{Stage: row.Stage, Phases: map[string]int{}}
			counts[row.Stage], nodes[row.Stage] = c, map[string]bool{}
		}
		c.Phases[row.Phase]++
		if row.Phase == string(corev1.PodRunning) && row.Why == "" {
			c.Ready++
		}
		if row.Node != "" && row.Phase != string(corev1.PodSucceeded) && row.Phase != string(corev1.PodFailed) {
			nodes[row.Stage][row.Node] = true
		}
	}
	all := []PodCount{}
	for _, stage := range p.stages {
		if c := counts[stage]; c != nil {
			c.Nodes = len(nodes[stage])
			all = append(all, *c)
		}
	}
	return all
}
