package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/simulator/unblock"
)

// A Report explains a JobSet, a Job or a quota Workload. It is the output in JSON.
type Report struct {
	// Kind is JobSet, Job or Workload.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason and Message are those of the condition StageAdmitted of a JobSet. Without a condition, Message may say why there is none.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Workloads are the quota Workloads in the order of the stages.
	Workloads []Workload `json:"workloads"`
	// Incomplete says why queue positions and holders of quota are missing. It is empty if they are not.
	Incomplete string `json:"incomplete,omitempty"`
	// WithoutSets says why there is no LetIn, and no expected start but that of the first waiting stage. It is empty if there is.
	WithoutSets string `json:"withoutSets,omitempty"`
	// WithoutLeader is a sentence with the time since which no manager has led. It is empty if one does, or if that is not known.
	WithoutLeader string `json:"withoutLeader,omitempty"`
}

// A Workload is a quota Workload.
type Workload struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// JobSet, Stage and Growth say what it stands for. They are empty if it belongs to no JobSet.
	JobSet  string    `json:"jobSet,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Growth  string    `json:"growth,omitempty"`
	Created time.Time `json:"created"`
	// Quota is what it holds, or nil.
	Quota *Quota `json:"quota,omitempty"`
	// State has sentences about its state, unless it is in a queue.
	State []string `json:"state,omitempty"`
	// Position and Explanation are those in its queue, if they are known.
	Position    *Position                  `json:"position,omitempty"`
	Explanation *visibilityapi.Explanation `json:"explanation,omitempty"`
	// ExpectedStart and LetIn are missing if they are not known.
	ExpectedStart *expected.Start `json:"expectedStart,omitempty"`
	LetIn         *LetIn          `json:"letIn,omitempty"`
	// Note says in what the answer from a snapshot may differ from that of the running manager. It is empty if it does not.
	Note string `json:"note,omitempty"`
}

// A Quota is what a quota Workload holds.
type Quota struct {
	ClusterQueue string `json:"clusterQueue"`
	// Charges has the amounts of all pod sets together, in the order of flavors and resources.
	Charges []Charge `json:"charges,omitempty"`
	// ReservedAt and AdmittedAt are missing if that has not happened.
	ReservedAt *time.Time `json:"reservedAt,omitempty"`
	AdmittedAt *time.Time `json:"admittedAt,omitempty"`
}

// A Charge is an amount of one flavor and resource.
type Charge struct {
	Flavor   kueue.ResourceFlavorReference `json:"flavor"`
	Resource corev1.ResourceName           `json:"resource"`
	Amount   resource.Quantity             `json:"amount"`
}

// A Position is a place in queues. The next quota Workload is at 0.
type Position struct {
	InClusterQueue int    `json:"inClusterQueue"`
	InLocalQueue   int    `json:"inLocalQueue"`
	LocalQueue     string `json:"localQueue"`
	Priority       int32  `json:"priority"`
}

// LetIn is what would let a pending quota Workload in.
type LetIn struct {
	// Why says what is true instead of, or besides, the sets.
	Why string `json:"why,omitempty"`
	// Sets are sets of changes, the cheapest first. Each of them is enough.
	Sets []Set `json:"sets,omitempty"`
}

// A Set is a set of changes after which the quota Workload is admitted.
type Set struct {
	Ends   []End   `json:"ends,omitempty"`
	Raises []Raise `json:"raises,omitempty"`
	// Evicts is how many quota Workloads the engine evicts then.
	Evicts int `json:"evicts,omitempty"`

	// changes has one sentence for each end and each raise.
	changes []string
}

// An End is a running quota Workload that ends.
type End struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	JobSet       string `json:"jobSet,omitempty"`
	Stage        string `json:"stage,omitempty"`
	ClusterQueue string `json:"clusterQueue"`
	// ExpectedBy is when it is expected to end, if that is known.
	ExpectedBy *time.Time `json:"expectedBy,omitempty"`
}

// A Raise is a limit of a ClusterQueue or Cohort that is raised.
type Raise struct {
	Kind     visibilityapi.NodeKind        `json:"kind"`
	Name     string                        `json:"name"`
	Flavor   kueue.ResourceFlavorReference `json:"flavor"`
	Resource corev1.ResourceName           `json:"resource"`
	Limit    visibilityapi.Limit           `json:"limit"`
	From     resource.Quantity             `json:"from"`
	To       resource.Quantity             `json:"to"`
}

func newWorkload(w *kueue.Workload, state ...string) *Workload {
	return &Workload{
		Namespace: w.Namespace, Name: w.Name, JobSet: w.Labels[apis.JobSetLabel], Stage: w.Labels[apis.StageLabel], Growth: w.Labels[apis.GrowthLabel],
		Created: w.CreationTimestamp.UTC(), Quota: quotaOf(w), State: state,
	}
}

// quotaOf returns what a quota Workload holds, or nil.
func quotaOf(w *kueue.Workload) *Quota {
	if w.Status.Admission == nil {
		return nil
	}
	since := func(condition string) *time.Time {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
			return new(c.LastTransitionTime.UTC())
		}
		return nil
	}
	q := &Quota{ClusterQueue: string(w.Status.Admission.ClusterQueue), ReservedAt: since(kueue.WorkloadQuotaReserved), AdmittedAt: since(kueue.WorkloadAdmitted)}
	for i := range w.Status.Admission.PodSetAssignments {
		p := &w.Status.Admission.PodSetAssignments[i]
		for name, amount := range p.ResourceUsage {
			q.add(Charge{p.Flavors[name], name, amount})
		}
	}
	slices.SortFunc(q.Charges, func(a, b Charge) int {
		return cmp.Or(cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Resource, b.Resource))
	})
	return q
}

func (q *Quota) add(c Charge) {
	for i := range q.Charges {
		if sum := &q.Charges[i]; sum.Flavor == c.Flavor && sum.Resource == c.Resource {
			sum.Amount.Add(c.Amount)
			return
		}
	}
	c.Amount = c.Amount.DeepCopy()
	q.Charges = append(q.Charges, c)
}

// letInOf converts what a search has found.
func letInOf(a *unblock.Answer) *LetIn {
	l := &LetIn{Why: a.Why}
	for i := range a.Sets {
		found := &a.Sets[i]
		set := Set{Evicts: found.Evicts, changes: changeTexts(found, a.Missing)}
		for k := range found.Succeed {
			r := &found.Succeed[k]
			end := End{Namespace: r.Workload.Namespace, Name: r.Workload.Name, JobSet: r.JobSet, Stage: r.Stage, ClusterQueue: r.ClusterQueue}
			if !r.End.IsZero() {
				end.ExpectedBy = new(r.End.UTC())
			}
			set.Ends = append(set.Ends, end)
		}
		for k := range found.Raise {
			r := &found.Raise[k]
			set.Raises = append(set.Raises, Raise{
				Kind: r.Limit.Kind, Name: r.Limit.Name, Flavor: r.Limit.Flavor, Resource: r.Limit.Resource, Limit: r.Limit.Field, From: r.From, To: r.To,
			})
		}
		l.Sets = append(l.Sets, set)
	}
	return l
}

// lines renders the report as text, in the format Text or Wide.
func (r *Report) lines(format output.Format) []string {
	var lines []string
	if r.Kind != workloadKind {
		lines = append(lines, r.Kind+" "+r.Namespace+"/"+r.Name)
		switch {
		case r.Reason != "":
			lines = append(lines, "  "+r.Reason+": "+r.Message)
		case r.Message != "":
			lines = append(lines, "  "+r.Message)
		}
	}
	if r.WithoutLeader != "" {
		lines = append(lines, "This may be out of date: "+r.WithoutLeader)
	}
	for i := range r.Workloads {
		lines = append(lines, r.Workloads[i].lines(format)...)
	}
	if r.Incomplete != "" {
		lines = append(lines, "Queue positions and holders of quota are not shown: "+r.Incomplete)
	}
	if r.WithoutSets != "" {
		lines = append(lines, "What would let it in is not shown: "+r.WithoutSets)
	}
	return lines
}

func (w *Workload) lines(format output.Format) []string {
	lines := []string{w.headline()}
	if format == output.Wide {
		lines = append(lines, w.wideLines()...)
	}
	for _, sentence := range w.State {
		lines = append(lines, "  "+sentence)
	}
	if p := w.Position; p != nil {
		lines = append(lines,
			fmt.Sprintf("  position %d in its ClusterQueue, %d in LocalQueue %s (0 is next), priority %d", p.InClusterQueue, p.InLocalQueue, p.LocalQueue, p.Priority))
	}
	if w.Explanation != nil {
		lines = append(lines, explanationLines(w.Explanation)...)
	}
	if w.ExpectedStart != nil {
		lines = append(lines, "  expected start: "+w.ExpectedStart.Text)
	}
	if w.LetIn != nil {
		lines = slices.Concat(lines, w.LetIn.lines())
	}
	if w.Note != "" {
		lines = append(lines, "  note: "+w.Note)
	}
	return lines
}

// wideLines has what text leaves out for brevity.
func (w *Workload) wideLines() []string {
	lines := []string{"  created at " + w.Created.Format(time.RFC3339)}
	if q := w.Quota; q != nil {
		for _, c := range q.Charges {
			lines = append(lines, fmt.Sprintf("  holds %s %s of flavor %s in ClusterQueue %s", c.Amount.String(), c.Resource, c.Flavor, q.ClusterQueue))
		}
		if q.ReservedAt != nil {
			lines = append(lines, "  reserved its quota at "+q.ReservedAt.Format(time.RFC3339))
		}
		if q.AdmittedAt != nil {
			lines = append(lines, "  admitted at "+q.AdmittedAt.Format(time.RFC3339))
		}
	}
	if w.Explanation != nil && w.Explanation.Check != "" {
		lines = append(lines, "  first check that it does not pass: "+w.Explanation.Check)
	}
	return lines
}

func (w *Workload) headline() string {
	line := "Workload " + w.Namespace + "/" + w.Name
	if stage := w.Stage; stage != "" {
		if w.Growth != "" {
			stage += ", growth " + w.Growth
		}
		line += fmt.Sprintf(" (stage %s of JobSet %s)", stage, w.JobSet)
	}
	return line
}

// Texts renders the sets, each in one sentence.
func (l *LetIn) Texts() []string {
	var all []string
	for i := range l.Sets {
		all = append(all, strings.Join(l.Sets[i].changes, "; and "))
	}
	return all
}

func (l *LetIn) lines() []string {
	var lines []string
	if l.Why != "" {
		lines = append(lines, "  to let it in: "+l.Why)
	}
	if len(l.Sets) > 0 {
		lines = append(lines, "  any one of these would let it in now:")
	}
	for i := range l.Sets {
		before := fmt.Sprintf("    %d. ", i+1)
		for _, change := range l.Sets[i].changes {
			lines = append(lines, before+change)
			before = "       and "
		}
	}
	return lines
}
