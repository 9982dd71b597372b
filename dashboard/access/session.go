package access

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/dashboard"
)

// Limits of the reviews of rights for one answer: each of a few rounds asks for what the last one needed in addition.
const (
	maxRounds = 3
	perRound  = 100
	// concurrently is the number of rights that are reviewed at a time.
	concurrently = 10
)

// A Session answers one request of a user. A stream of events opens a new one from time to time.
type Session struct {
	gate *Gate
	user *User
	// all has the rights that the user has in all namespaces, or to all names.
	all map[right]bool

	mu sync.Mutex
	// unknown are the questions whose answer was not known, in the order in which they were asked.
	unknown []unknown
	isAsked map[question]bool
	rounds  int
}

// An unknown is a question whose answer was not known. If the user had the right before, the next answer needs it first.
type unknown struct {
	question
	isUrgent bool
}

// open asks what the user may do everywhere.
func (g *Gate) open(ctx context.Context, u *User) (*Session, error) {
	s := &Session{gate: g, user: u, all: map[right]bool{}, isAsked: map[question]bool{}}
	everywhere := []question{{user: u.key, right: listWorkloads}, {user: u.key, right: listJobSets}, {user: u.key, right: getClusterQueue}}
	if err := s.reviewAll(ctx, everywhere, g.review); err != nil {
		return nil, err
	}
	for _, q := range everywhere {
		last, isKnown := g.verdict(u, q)
		s.all[q.right] = isKnown && last.isAllowed
	}
	return s, nil
}

// Name returns the name of the user.
func (s *Session) Name() string { return s.user.info.Username }

// Viewer returns what the user may see, as far as it is known. What is not known is hidden, and Learn asks for it.
func (s *Session) Viewer() dashboard.Viewer {
	var v dashboard.Viewer
	if !s.all[listWorkloads] {
		v.Namespace = once(func(name string) bool { return s.may(question{right: listWorkloads, namespace: name}) })
	}
	if !s.all[listJobSets] {
		v.JobSets = once(func(name string) bool { return s.may(question{right: listJobSets, namespace: name}) })
	}
	if !s.all[getClusterQueue] {
		v.ClusterQueue = once(func(name string) bool { return s.may(question{right: getClusterQueue, name: name}) })
	}
	return v
}

// once returns a function that calls f at most once for each name: an answer may ask for the namespace of each quota Workload. It is not safe for
// concurrent use.
func once(f func(name string) bool) func(name string) bool {
	verdicts := map[string]bool{}
	return func(name string) bool {
		allowed, isKnown := verdicts[name]
		if !isKnown {
			allowed = f(name)
			verdicts[name] = allowed
		}
		return allowed
	}
}

func (s *Session) may(q question) bool {
	q.user = s.user.key
	last, isKnown := s.gate.verdict(s.user, q)
	if isKnown {
		return last.isAllowed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAsked[q] {
		s.isAsked[q] = true
		// The JobSets of a namespace are only asked for if the namespace is allowed.
		s.unknown = append(s.unknown, unknown{q, last.isAllowed || q.right == listJobSets})
	}
	return false
}

// Learn asks for rights that the Viewer did not know, and reports whether there were any, so that the answer should be computed again. Their number
// is limited: what is beyond remains hidden, and a later answer has it.
func (s *Session) Learn(ctx context.Context) (hasLearned bool, err error) {
	questions := s.next()
	if len(questions) == 0 {
		return false, nil
	}
	return true, s.reviewAll(ctx, questions, s.gate.ask)
}

// next returns the questions of the next round. It does not wait until the person may cause more reviews.
func (s *Session) next() (questions []question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.unknown, func(a, b unknown) int { return urgency(b) - urgency(a) })
	if s.rounds < maxRounds {
		for _, q := range s.unknown[:min(len(s.unknown), perRound)] {
			if !s.user.reviews.TryAccept() {
				break
			}
			questions = append(questions, q.question)
		}
	}
	switch {
	case len(questions) > 0:
		s.rounds++
		s.unknown, s.isAsked = nil, map[question]bool{} // the next answer asks again
	case len(s.unknown) > 0:
		s.user.unfinished.Add(1)
	}
	return questions
}

func urgency(q unknown) int {
	if q.isUrgent {
		return 1
	}
	return 0
}

// Unknown returns how many rights were not known for the current answer.
func (s *Session) Unknown() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unknown)
}

// Unfinished counts the answers to the user for which not all rights were known. If it grows, a page should read its answers again.
func (s *Session) Unfinished() uint64 { return s.user.unfinished.Load() }

// MayGetJobSet reports whether the user may see a JobSet with its stages.
func (s *Session) MayGetJobSet(ctx context.Context, k types.NamespacedName) (bool, error) {
	questions := []question{{user: s.user.key, right: getJobSet, namespace: k.Namespace, name: k.Name}}
	if !s.all[listWorkloads] {
		questions = append(questions, question{user: s.user.key, right: listWorkloads, namespace: k.Namespace})
	}
	for _, q := range questions {
		if allowed, err := s.gate.review(ctx, s.user, q); !allowed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// reviewAll answers questions with a function of the Gate, a few at a time.
func (s *Session) reviewAll(ctx context.Context, questions []question, answer func(context.Context, *User, question) (bool, error)) error {
	var working sync.WaitGroup
	next := make(chan question)
	failed := make(chan error, concurrently)
	for range min(concurrently, len(questions)) {
		working.Go(func() {
			var err error
			for q := range next {
				if err == nil {
					_, err = answer(ctx, s.user, q)
				}
			}
			failed <- err
		})
	}
	for _, q := range questions {
		next <- q
	}
	close(next)
	working.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
