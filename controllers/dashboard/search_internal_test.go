package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	model "github.com/tranche-dev/tranche/dashboard"
)

// shown returns what the page of a JobSet with one quota Workload in a queue shows.
func shown(s *searcher, name string) *model.JobSetObjects {
	objects := &model.JobSetObjects{JobSet: &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}}
	s.add(objects, []types.NamespacedName{{Namespace: "team", Name: name + "-train"}})
	return objects
}

// begin starts a searcher, and returns a function that ends it.
func begin(t *testing.T, s *searcher) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A page learns that its search has ended, and a page that has asked meanwhile when it may ask again. What was found counts for a while.
func TestSearcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * time.Second
		var searched []string
		changes := 0
		s := newSearcher(func(_ context.Context, workloads []types.NamespacedName) (map[string]*model.LetIn, error) {
			searched = append(searched, workloads[0].Name)
			time.Sleep(takes)
			return map[string]*model.LetIn{workloads[0].Name: {Why: fmt.Sprint("search ", len(searched))}}, nil
		}, func() { changes++ }, logr.Discard())
		if text := shown(s, "a").WithoutSets; text != "this replica of the manager does not lead; tranche explain -n team a finds it" {
			t.Errorf("a replica that does not lead shows %q", text)
		}
		defer begin(t, s)()
		for _, name := range []string{"a", "b"} {
			if text := shown(s, name).WithoutSets; text != "it is being computed" {
				t.Errorf("at first %s shows %q", name, text)
			}
			synctest.Wait()
		}
		time.Sleep(takes)
		synctest.Wait()
		if got := shown(s, "a"); got.WithoutSets != "" || got.LetIn["a-train"].Why != "search 1" || changes != 1 {
			t.Errorf("after the search %q, %v and %d changes", got.WithoutSets, got.LetIn, changes)
		}
		shown(s, "b") // it is too early
		time.Sleep(searchPause*takes + time.Millisecond)
		synctest.Wait()
		if changes != 2 || len(searched) != 1 {
			t.Errorf("after the pause %d changes and the searches %v", changes, searched)
		}
		shown(s, "a") // it is known
		shown(s, "b")
		time.Sleep(takes + searchPause*takes + time.Millisecond)
		synctest.Wait()
		if got := shown(s, "b"); got.LetIn["b-train"] == nil {
			t.Errorf("b shows %q", got.WithoutSets)
		}
		if got := shown(s, "a"); got.LetIn["a-train"].Why != "search 1" { // it is old, and stays until it is found again
			t.Errorf("a shows %v", got.LetIn)
		}
		time.Sleep(takes + time.Millisecond)
		synctest.Wait()
		if got := shown(s, "a"); got.LetIn["a-train"].Why != "search 3" || strings.Join(searched, " ") != "a-train b-train a-train" {
			t.Errorf("a shows %v after the searches %v", got.LetIn["a-train"], searched)
		}
	})
}

// A manager that does not search names the command that does, for JobSets with stages in a queue.
func TestNoSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSearcher(nil, func() { t.Error("pages ask again") }, logr.Discard())
		defer begin(t, s)()
		if text := shown(s, "a").WithoutSets; text != "tranche explain -n team a finds it" {
			t.Errorf("it shows %q", text)
		}
		synctest.Wait()
		objects := &model.JobSetObjects{JobSet: &jobsetapi.JobSet{}}
		if s.add(objects, nil); objects.WithoutSets != "" {
			t.Errorf("a JobSet without stages in a queue shows %q", objects.WithoutSets)
		}
	})
}

// However many pages ask, searches take at most a tenth of the time.
func TestSearchesPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		s := newSearcher(func(context.Context, []types.NamespacedName) (map[string]*model.LetIn, error) {
			time.Sleep(300 * time.Millisecond)
			took += 300 * time.Millisecond
			return map[string]*model.LetIn{}, nil
		}, func() {}, logr.Discard())
		defer begin(t, s)()
		for i := range 600 {
			shown(s, fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		if took < 5*time.Second || took > 6300*time.Millisecond {
			t.Errorf("searches took %s of a minute", took)
		}
	})
}

// A search that takes too long, panics, fails or is not made is reported with what to do instead. Only the log has what it cannot show to every user.
func TestSearchesThatFail(t *testing.T) {
	const instead = "; tranche explain -n team a finds it"
	for name, tc := range map[string]struct {
		search Search
		want   string
		logged int
	}{
		"too long": {func(ctx context.Context, _ []types.NamespacedName) (map[string]*model.LetIn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "the search takes longer than 10s" + instead, 0},
		"panic": {func(context.Context, []types.NamespacedName) (map[string]*model.LetIn, error) { panic("secret") }, "the search has failed, the log of the manager has the reason" + instead, 1},
		"error": {func(context.Context, []types.NamespacedName) (map[string]*model.LetIn, error) {
			return nil, errors.New("secret")
		}, "the search has failed, the log of the manager has the reason" + instead, 1},
		"not made": {func(context.Context, []types.NamespacedName) (map[string]*model.LetIn, error) {
			return nil, fmt.Errorf("%w: too many", ErrNotSearched)
		}, "it was not searched: too many; with a larger --max-workloads, tranche explain -n team a finds it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged []string
				s := newSearcher(tc.search, func() {}, funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
				defer begin(t, s)()
				shown(s, "a")
				time.Sleep(searchTime + time.Millisecond)
				synctest.Wait()
				if got := shown(s, "a").WithoutSets; got != tc.want || len(logged) != tc.logged {
					t.Errorf("it shows %q, and %d lines are logged", got, len(logged))
				}
			})
		})
	}
}
