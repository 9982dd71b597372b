package dashboard

import (
	"cmp"
	"slices"
	"strings"
)

// maxFound is the number of results of each kind.
const maxFound = 10

// A Found is an object whose name contains the searched text.
type Found struct {
	Kind         string `json:"kind"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
}

// Search returns the objects that the viewer sees and whose names contain a text: first those whose names begin with it. At most ten of each
// kind are returned.
func (m *Model) Search(v Viewer, text string) []Found {
	return Search(func(f func(m *Model)) { f(m) }, v, text)
}

// Search returns what the method of the Model does. Each call of use gives it the Model for a short time only, as for ScanJobSets.
func Search(use func(func(m *Model)), v Viewer, text string) []Found {
	found := []Found{}
	if text = strings.ToLower(strings.TrimSpace(text)); text == "" {
		return found
	}
	s := &searcher{text: text}
	use(func(m *Model) { found = append(found, s.queues(m, v)...) })
	scanAll(use, func(_ *Model, js *jobSet) {
		if strings.Contains(js.key.Name, text) && v.seesJobSets(js.key.Namespace) {
			s.add(Found{Kind: "JobSet", Namespace: js.key.Namespace, Name: js.key.Name})
		}
	}, func() {})
	return append(found, s.best()...)
}

// queues returns the Cohorts and ClusterQueues, and then the LocalQueues.
func (s *searcher) queues(m *Model, v Viewer) []Found {
	visible := m.visibleRows(v)
	for _, row := range m.settled().rows {
		if visible[row] {
			s.add(Found{Kind: row.Kind, Name: row.Name})
		}
	}
	found := s.best()
	for key, q := range m.localQueues {
		if q.exists && strings.Contains(key.Name, s.text) && v.seesNamespace(key.Namespace) {
			s.add(Found{Kind: "LocalQueue", Namespace: key.Namespace, Name: key.Name, ClusterQueue: v.clusterQueueFor(q.clusterQueue)})
		}
	}
	return append(found, s.best()...)
}

// A searcher collects the best matches.
type searcher struct {
	text string
	// hits are in their order.
	hits []Found
}

// add keeps a match if it is one of the best: a text can be in the names of all objects.
func (s *searcher) add(f Found) {
	if !strings.Contains(f.Name, s.text) {
		return
	}
	at, _ := slices.BinarySearchFunc(s.hits, f, s.compare)
	if at == maxFound {
		return
	}
	s.hits = slices.Insert(s.hits, at, f)
	s.hits = s.hits[:min(len(s.hits), maxFound)]
}

func (s *searcher) compare(a, b Found) int {
	isLater := func(f Found) int {
		if strings.HasPrefix(f.Name, s.text) {
			return 0
		}
		return 1
	}
	return cmp.Or(isLater(a)-isLater(b), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind))
}

// best returns the best matches, and forgets them.
func (s *searcher) best() []Found {
	best := s.hits
	s.hits = nil
	return best
}
