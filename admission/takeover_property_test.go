package admission_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A line is a ClusterQueue with one GPU, for which jobs of mixed priority and age wait. Kueue admits in it, or the Engine while it is taken.
type line struct {
	*besideKueue
	isTaken bool
	// waiting are the jobs that have not started, and arrived counts all.
	waiting []queued
	arrived int
}

// A queued job has what decides about its order.
type queued struct {
	name     string
	priority int32
	created  int
}

// compare orders jobs as Kueue does: the highest priority first, of these the oldest, and of these by UID.
func (p queued) compare(other queued) int {
	return cmp.Or(cmp.Compare(other.priority, p.priority), cmp.Compare(p.created, other.created), cmp.Compare(p.name, other.name))
}

func newLine(t *rapid.T) *line {
	l := &line{besideKueue: newBesideKueue(t)}
	l.r = t
	l.queue("q", "x: gpu=1")
	return l
}

func (l *line) arrive() {
	p := queued{fmt.Sprintf("job%02d", l.arrived), int32(rapid.IntRange(0, 2).Draw(l.r, "priority")), rapid.IntRange(0, 5).Draw(l.r, "created")}
	l.arrived++
	l.lone("q", p.name, "gpu=1", func(wl *kueue.Workload) {
		wl.Spec.Priority = &p.priority
		wl.CreationTimestamp = metav1.NewTime(start().Add(time.Duration(p.created) * time.Second))
	})
	l.waiting = append(l.waiting, p)
}

// start lets the engine that leads admit one job, which finishes at once.
func (l *line) start() {
	slices.SortFunc(l.waiting, queued.compare)
	first := l.waiting[0].name
	got := l.admitted()
	switch {
	case l.isTaken && !slices.Equal(got, []string{first}):
		l.t.Fatalf("Tranche admitted %v, and %s is the first of %+v", got, first, l.waiting)
	case !l.isTaken && got != nil:
		l.t.Fatalf("Tranche admitted %v in a ClusterQueue of Kueue", got)
	case !l.isTaken:
		l.reserve(first, assignedOf("q", "1"))
	}
	l.remove(first)
	l.waiting = l.waiting[1:]
}

// change takes the ClusterQueue over, or hands it back.
func (l *line) change() {
	l.isTaken = !l.isTaken
	if l.isTaken {
		l.changeQueue("q", asking)
		l.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"q"}})
		return
	}
	l.engine.Apply(admission.QueueReturned{ClusterQueue: "q"})
	l.changeQueue("q", func(q *kueue.ClusterQueue) { q.Annotations, q.Spec.StopPolicy, q.Status.Conditions = nil, nil, nil })
}

// restart starts the manager again, which finds the lock.
func (l *line) restart() {
	l.besideKueue.restart()
	if l.isTaken {
		l.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"q"}})
	}
}

// TestPlacesAreKept takes a ClusterQueue over and hands it back again and again, while jobs wait and arrive, and the manager restarts. Each engine admits
// the job that is first in Kueue's order of all that wait: a change of the engine costs no job its place in line.
func TestPlacesAreKept(t *testing.T) {
	turns := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(t)
		for range rapid.IntRange(4, 10).Draw(t, "jobs") {
			l.arrive()
		}
		later := rapid.IntRange(0, 4).Draw(t, "later")
		for len(l.waiting) > 0 {
			what := rapid.SampledFrom([]string{"starts", "starts", "changes", "restarts", "arrives"}).Draw(t, "what")
			turns[what]++
			switch {
			case what == "starts":
				l.start()
			case what == "changes":
				l.change()
			case what == "restarts":
				l.restart()
			case later > 0:
				later--
				l.arrive()
			}
		}
	})
	t.Logf("turns: %v", turns)
}
