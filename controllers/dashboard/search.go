package dashboard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	model "github.com/tranche-dev/tranche/dashboard"
)

const (
	// searchTime is how long one search may take.
	searchTime = 10 * time.Second
	// searchPause is how many times longer than the last search has taken there is no other one: searches take at most a tenth of a processor,
	// however many pages are open.
	searchPause = 9
	// foundFor is for how long what was found counts, and maxFound the number of JobSets for which it is kept.
	foundFor = 30 * time.Second
	maxFound = 256
)

// A Search finds what would let quota Workloads in, by their names, until the context is done. The answer has those of them that are pending.
type Search func(ctx context.Context, workloads []types.NamespacedName) (map[string]*model.LetIn, error)

// A searcher finds what would let the stages of JobSets in, one JobSet at a time and in the background, when a page asks for it. It runs where the
// manager leads: only there the cache has all that a search reads.
type searcher struct {
	// search is nil if the manager does not search.
	search Search
	// changed lets pages ask again.
	changed func()
	log     logr.Logger
	asked   chan question

	mu       sync.Mutex
	isActive bool
	// isMissed is true if a page has asked while another question was answered.
	isMissed bool
	known    *lru.Cache
}

// A question is about the quota Workloads of a JobSet that are in a queue.
type question struct {
	jobSet    types.UID
	workloads []types.NamespacedName
}

// A finding is the answer to a question.
type finding struct {
	letIn map[string]*model.LetIn
	err   error
	until time.Time
}

func newSearcher(search Search, changed func(), log logr.Logger) *searcher {
	return &searcher{search: search, changed: changed, log: log, asked: make(chan question), known: lru.New(maxFound)}
}

// NeedLeaderElection returns true: the caches of other replicas do not have all kinds.
func (s *searcher) NeedLeaderElection() bool { return true }

// add adds what is known to the objects of a JobSet of which some quota Workloads are in a queue, and lets it be searched again if that is old.
func (s *searcher) add(objects *model.JobSetObjects, waiting []types.NamespacedName) {
	if len(waiting) == 0 {
		return
	}
	instead := fmt.Sprintf("tranche explain -n %s %s finds it", objects.JobSet.Namespace, objects.JobSet.Name)
	if s.search == nil {
		objects.WithoutSets = instead
		return
	}
	last, isActive := s.last(question{objects.JobSet.UID, waiting})
	switch {
	case !isActive:
		objects.WithoutSets = "this replica of the manager does not lead; " + instead
	case last == nil:
		objects.WithoutSets = "it is being computed"
	case errors.Is(last.err, ErrNotSearched):
		objects.WithoutSets = fmt.Sprintf("%v; with a larger --max-workloads, %s", last.err, instead)
	case last.err != nil:
		objects.WithoutSets = last.err.Error() + "; " + instead
	default:
		objects.LetIn = last.letIn
	}
}

// last returns the last answer to a question, or nil, and asks it again if it is time.
func (s *searcher) last(q question) (last *finding, isActive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, isKnown := s.known.Get(q.jobSet); isKnown {
		last, _ = known.(*finding)
	}
	if s.isActive && (last == nil || time.Now().After(last.until)) {
		select {
		case s.asked <- q:
		default:
			s.isMissed = true
		}
	}
	return last, s.isActive
}

// Start answers questions until the context is done.
func (s *searcher) Start(ctx context.Context) error {
	s.setActive(true)
	defer s.setActive(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-s.asked:
			took := s.answer(ctx, q)
			s.changed()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(searchPause * took):
			}
			if s.missed() {
				s.changed()
			}
		}
	}
}

func (s *searcher) setActive(isActive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isActive = isActive
}

// missed reports whether a page has asked without success since the last call.
func (s *searcher) missed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.isMissed
	s.isMissed = false
	return was
}

// answer searches, keeps what was found, and returns how long that took.
func (s *searcher) answer(ctx context.Context, q question) time.Duration {
	began := time.Now()
	found := &finding{}
	found.letIn, found.err = s.find(ctx, q)
	now := time.Now()
	found.until = now.Add(foundFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Add(q.jobSet, found)
	return now.Sub(began)
}

// find searches. A panic would end the manager: what is simulated was written by users.
func (s *searcher) find(ctx context.Context, q question) (found map[string]*model.LetIn, err error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error(fmt.Errorf("panic: %v", cause), "Searching what would let a JobSet in", "workloads", q.workloads, "stack", string(debug.Stack()))
			found, err = nil, errSearchFailed
		}
	}()
	found, err = s.search(ctx, q.workloads)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the search takes longer than %s", searchTime)
	case err != nil && !errors.Is(err, ErrNotSearched):
		s.log.Error(err, "Searching what would let a JobSet in", "workloads", q.workloads)
		return nil, errSearchFailed
	}
	return found, err
}

// ErrNotSearched is the error of a Search that was not made, with a reason that every user may read.
var ErrNotSearched = errors.New("it was not searched")

var errSearchFailed = errors.New("the search has failed, the log of the manager has the reason")
