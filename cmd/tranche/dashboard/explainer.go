package dashboard

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/dashboard"
)

const (
	// maxExplained is the number of JobSets whose explanations are kept.
	maxExplained = 64
	// explainedFor is for how long an explanation counts at least. It counts ten times as long as it took.
	explainedFor  = 10 * time.Second
	renewalFactor = 10
)

// An explainer finds in the background what would let the stages of a JobSet in, and why they wait, which takes longer than a page waits. It is safe
// for concurrent use.
type explainer struct {
	// explain is called by one goroutine at a time.
	explain func(ctx context.Context, key types.NamespacedName) (*explanation, error)
	// changed lets pages ask again.
	changed func()
	// isFixed is true if explanations do not change: they are those of a snapshot.
	isFixed bool

	mu     sync.Mutex
	isBusy bool
	known  *lru.Cache
}

// An explanation is the report of the verb explain, and when its snapshot was taken.
type explanation struct {
	report *explain.Report
	taken  time.Time
}

// An attempt is how an explanation ended.
type attempt struct {
	*explanation
	err     error
	renewAt time.Time
}

func newExplainer(explain func(context.Context, types.NamespacedName) (*explanation, error), changed func()) *explainer {
	return &explainer{explain: explain, changed: changed, known: lru.New(maxExplained)}
}

// add adds what is known to the objects of a JobSet with stages in a queue, and lets it be found again if that is old. The context is that of the program.
func (e *explainer) add(ctx context.Context, objects *dashboard.JobSetObjects) {
	var waiting []string
	for _, w := range objects.Workloads {
		if quotaworkload.MayQueue(w) {
			waiting = append(waiting, w.Name)
		}
	}
	if len(waiting) == 0 {
		return
	}
	last := e.last(ctx, types.NamespacedName{Namespace: objects.JobSet.Namespace, Name: objects.JobSet.Name})
	switch {
	case last == nil:
		objects.WithoutSets = "it is being computed"
	case last.err != nil:
		objects.WithoutSets = last.err.Error()
	default:
		last.addTo(objects, waiting)
	}
}

// last returns the last attempt to explain a JobSet, or nil, and begins another one if it is time and no other is being made.
func (e *explainer) last(ctx context.Context, key types.NamespacedName) *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last *attempt
	if known, isKnown := e.known.Get(key); isKnown {
		last, _ = known.(*attempt)
	}
	if !e.isBusy && (last == nil || !e.isFixed && time.Now().After(last.renewAt)) {
		e.isBusy = true
		go e.find(ctx, key)
	}
	return last
}

func (e *explainer) find(ctx context.Context, key types.NamespacedName) {
	began := time.Now()
	found, err := e.explain(ctx, key)
	now := time.Now()
	e.mu.Lock()
	e.isBusy = false
	e.known.Add(key, &attempt{found, err, now.Add(max(explainedFor, renewalFactor*now.Sub(began)))})
	e.mu.Unlock()
	e.changed()
}

// addTo adds what the report says about the quota Workloads that wait.
func (x *explanation) addTo(objects *dashboard.JobSetObjects, waiting []string) {
	objects.WithoutSets, objects.Notes = x.report.WithoutSets, map[string]string{}
	unexplained := len(waiting)
	for i := range x.report.Workloads {
		w := &x.report.Workloads[i]
		for _, name := range waiting {
			if name != w.Name {
				continue
			}
			if w.LetIn != nil {
				objects.LetIn[name] = &dashboard.LetIn{Why: w.LetIn.Why, Sets: w.LetIn.Texts(), Taken: x.taken}
			}
			if objects.Explanations[name] == nil && w.Explanation != nil {
				objects.Explanations[name], objects.Notes[name] = w.Explanation, w.Note
			}
			if objects.Explanations[name] != nil {
				unexplained--
			}
		}
	}
	if unexplained == 0 {
		objects.Gap = "" // the snapshot has what the visibility API would say
	}
}
