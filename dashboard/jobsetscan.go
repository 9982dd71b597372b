package dashboard

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// A JobSetFilter selects JobSets.
type JobSetFilter struct {
	// Namespace, Queue (a LocalQueue), ClusterQueue and State select exact values, and Text a part of the name.
	Namespace, Queue, ClusterQueue, Text string
	State                                JobSetState
	// Sort is one of JobSetSorts. Without it the JobSets that need attention come first.
	Sort string
}

// A JobSetsAnswer is a page of JobSets.
type JobSetsAnswer struct {
	Page[JobSetRow]
	// States counts those that match, and Held is what they hold together: accelerators come first.
	States map[JobSetState]int `json:"states,omitempty"`
	Held   []Amount            `json:"held,omitempty"`
	// Hidden is the number of JobSets in namespaces that the viewer does not see.
	Hidden int `json:"hidden,omitempty"`
}

// JobSets returns a page of JobSets, in the order of a column, or of the attention that they need.
func (m *Model) JobSets(v Viewer, f JobSetFilter, w Window) JobSetsAnswer {
	return ScanJobSets(func(f func(m *Model)) { f(m) }, v, f, w)
}

// scanStep is how many JobSets one step of a scan visits: that takes a millisecond or two.
const scanStep = 2000

// scanAll visits all JobSets in their order. Each call of use visits some of them, so that others can use the Model in between. Before each further one it calls
// between. A JobSet whose place changes meanwhile may be visited twice, or not at all.
func scanAll(use func(func(m *Model)), visit func(m *Model, js *jobSet), between func()) {
	var last *jobSet // a copy: the place of the JobSet itself may change
	for isDone := false; !isDone; between() {
		use(func(m *Model) {
			rest := m.jobSets.From(0)
			if last != nil {
				rest = m.jobSets.After(last)
			}
			visited := 0
			for _, js := range rest {
				if visited++; visited > scanStep {
					return
				}
				visit(m, js)
				if visited == scanStep {
					last = &jobSet{key: js.key, attention: js.attention, since: js.since}
				}
			}
			isDone = true
		})
	}
}

// ScanJobSets returns what JobSets does. Each call of use gives it the Model for a short time only, however many JobSets there are, and orders them in between,
// so that others can use the Model meanwhile. A JobSet whose place changes during the scan may be missing until the next answer.
func ScanJobSets(use func(func(m *Model)), v Viewer, f JobSetFilter, w Window) JobSetsAnswer {
	s := &jobSetScan{v: v, f: f, w: w.bounded(), sums: newTotals()}
	s.f.Text = strings.ToLower(f.Text)
	s.column, s.isReversed = strings.CutPrefix(f.Sort, "-")
	if v.seesAllJobSets() && f == (JobSetFilter{}) {
		use(s.takePage)
		return s.answer
	}
	scanAll(use, s.visit, func() { s.trim(2 * s.most()) })
	if s.trim(0); s.column != "" {
		s.found = s.found[min(s.w.Offset, len(s.found)):]
	}
	use(s.finish)
	return s.answer
}

// A jobSetScan visits all JobSets.
type jobSetScan struct {
	v Viewer
	f JobSetFilter
	w Window
	// column is that of the order, or empty.
	column     string
	isReversed bool

	// found are the JobSets of the page, or with a column also those before it. Total counts all that match.
	found  []sortKey
	total  int
	sums   totals
	answer JobSetsAnswer
}

// takePage visits the JobSets of the page, and no others.
func (s *jobSetScan) takePage(m *Model) {
	s.answer = JobSetsAnswer{
		Page: pageOfList(s.w, m.jobSets, func(_ int, js *jobSet) JobSetRow { return m.listedRow(s.v, js) }), States: m.jobSetTotals.present(), Held: m.jobSetTotals.amounts(),
	}
}

func (s *jobSetScan) visit(m *Model, js *jobSet) {
	switch {
	case !s.v.seesJobSets(js.key.Namespace):
		s.answer.Hidden++
	case m.matches(&s.v, &s.f, js):
		if s.column != "" {
			s.found = append(s.found, m.sortKeyOf(&s.v, js, s.column))
		} else if s.total >= s.w.Offset && s.total < s.most() {
			s.found = append(s.found, sortKey{key: js.key})
		}
		s.total++
		s.sums.states[js.state]++
		s.sums.add(js.owner.held, 1)
	}
}

// most is how many JobSets come before the end of the page.
func (s *jobSetScan) most() int { return s.w.Offset + s.w.Limit }

// trim sorts the JobSets by the column, and drops those beyond the page, if there are more than so many.
func (s *jobSetScan) trim(than int) {
	if s.column == "" || len(s.found) <= than {
		return
	}
	slices.SortFunc(s.found, func(a, b sortKey) int { return a.compare(&b, s.isReversed) })
	s.found = s.found[:min(len(s.found), s.most())]
}

// finish fills the page.
func (s *jobSetScan) finish(m *Model) {
	s.answer.States, s.answer.Held = s.sums.present(), s.sums.amounts()
	s.answer.Page = Page[JobSetRow]{Total: s.total, Offset: s.w.Offset, Items: []JobSetRow{}}
	shown := map[types.NamespacedName]bool{}
	for _, k := range s.found {
		// A JobSet may have been deleted since it was visited, or may have been visited at two places.
		if js := m.jobSetsByKey[k.key]; js != nil && !shown[k.key] {
			shown[k.key] = true
			s.answer.Items = append(s.answer.Items, m.listedRow(s.v, js))
		}
	}
}

// listedRow returns the row of a list, in which long texts are cut.
func (m *Model) listedRow(v Viewer, js *jobSet) JobSetRow {
	row := m.jobSetRow(v, js)
	row.Progress, row.Message = shortened(row.Progress), shortened(row.Message)
	return row
}

// matches reports whether a JobSet that the viewer sees passes a filter, whose text is in lower case.
func (m *Model) matches(v *Viewer, f *JobSetFilter, js *jobSet) bool {
	return (f.Namespace == "" || js.key.Namespace == f.Namespace) && (f.Queue == "" || js.queue == f.Queue) && (f.State == "" || js.state == f.State) &&
		(f.ClusterQueue == "" || v.clusterQueueFor(m.clusterQueueOf(js)) == f.ClusterQueue) && strings.Contains(js.key.Name, f.Text)
}
