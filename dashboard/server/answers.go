package server

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxText is the length of the longest text that is searched.
const maxText = 253

// An aboutAnswer is an About with what the viewer may select.
type aboutAnswer struct {
	About
	// Overview is true if the viewer may see what sums up all ClusterQueues, and there are any.
	Overview     bool                    `json:"overview,omitempty"`
	States       []dashboard.State       `json:"states"`
	JobSetStates []dashboard.JobSetState `json:"jobSetStates"`
}

func (s *server) about(r *http.Request, session *access.Session) (answerer, error) {
	return func(v dashboard.Viewer) (any, error) {
		answer := aboutAnswer{About: s.About(), States: dashboard.States(), JobSetStates: dashboard.JobSetStates(), Overview: v.SeesOverview()}
		if answer.Overview && answer.IsSynced {
			s.Store.Use(func(m *dashboard.Model) { answer.Overview = m.HasClusterQueues() })
		}
		if session != nil {
			// To look at all namespaces counts those of which the rights are not read yet.
			s.Store.Use(func(m *dashboard.Model) { m.Namespaces(v, "", dashboard.Window{}) })
			answer.User = session.Name()
			_, answer.CanSignOut = tokenOf(r)
			if n := session.Unknown(); n > 0 {
				answer.Gaps = append(slices.Clone(answer.Gaps), snapshot.Gap{
					Resource: "workloads.kueue.x-k8s.io", Reason: fmt.Sprintf("your rights in %d more namespaces are being read", n), Cure: "wait a few seconds",
				})
			}
		}
		return answer, nil
	}, nil
}

// namespaces answers apart from about, which the page reads after each change: there can be thousands.
func (s *server) namespaces(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	text, window := q.text("text"), q.window()
	return func(v dashboard.Viewer) (answer any, err error) {
		s.Store.Use(func(m *dashboard.Model) { answer = m.Namespaces(v, text, window) })
		return answer, nil
	}, q.end()
}

func (s *server) overview(*http.Request, *access.Session) (answerer, error) {
	return func(v dashboard.Viewer) (any, error) {
		var answer dashboard.OverviewAnswer
		isAllowed := false
		s.Store.Use(func(m *dashboard.Model) { answer, isAllowed = m.Overview(v, s.now()) })
		if !isAllowed {
			return nil, forbidden{errors.New("the overview sums up all ClusterQueues, which you may not read: " +
				"ask for the right to get clusterqueues.kueue.x-k8s.io, as the ClusterRole " + dashboard.ReaderRole + " grants it")}
		}
		return answer, nil
	}, nil
}

func (s *server) localQueues(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	filter := dashboard.LocalQueueFilter{Namespace: q.text("namespace"), ClusterQueue: q.text("clusterQueue"), Text: q.text("text")}
	window := q.window()
	return func(v dashboard.Viewer) (answer any, err error) {
		s.Store.Use(func(m *dashboard.Model) { answer = m.LocalQueues(v, filter, window) })
		return answer, nil
	}, q.end()
}

func (s *server) localQueue(r *http.Request, _ *access.Session) (answerer, error) {
	key := keyOf(r)
	return func(v dashboard.Viewer) (answer any, err error) {
		isThere := false
		s.Store.Use(func(m *dashboard.Model) { answer, isThere = m.LocalQueue(v, key) })
		if !isThere {
			return nil, apierrors.NewNotFound(kueue.Resource("localqueues"), key.Name)
		}
		return answer, nil
	}, nil
}

func (s *server) localQueueWorkloads(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	filter := dashboard.WorkloadFilter{
		List: q.oneOf("list", []string{dashboard.ListPending, dashboard.ListHolding}), Text: q.text("text"),
		State: dashboard.State(q.oneOf("state", texts(dashboard.States()))),
	}
	window, key := q.window(), keyOf(r)
	return func(v dashboard.Viewer) (answer any, err error) {
		isThere := false
		s.Store.Use(func(m *dashboard.Model) { answer, isThere = m.LocalQueueWorkloads(v, key, filter, window) })
		if !isThere {
			return nil, apierrors.NewNotFound(kueue.Resource("localqueues"), key.Name)
		}
		return answer, nil
	}, q.end()
}

func (s *server) queues(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	states := []string{
		dashboard.QueuesPending, dashboard.QueuesBorrowing, dashboard.QueuesLending, dashboard.QueuesIdle, dashboard.QueuesInactive,
	}
	filter := dashboard.QueueFilter{
		Under: q.text("under"), Text: q.text("text"), Namespace: q.text("namespace"), State: q.oneOf("state", states),
	}
	window := q.window()
	return func(v dashboard.Viewer) (answer any, err error) {
		s.Store.Use(func(m *dashboard.Model) { answer = m.Queues(v, filter, window) })
		return answer, nil
	}, q.end()
}

func (s *server) queue(r *http.Request, _ *access.Session) (answerer, error) {
	name := r.PathValue("queue")
	return func(v dashboard.Viewer) (any, error) {
		var answer dashboard.QueueAnswer
		isThere := false
		s.Store.Use(func(m *dashboard.Model) { answer, isThere = m.Queue(v, name, s.now()) })
		if !isThere {
			return nil, apierrors.NewNotFound(kueue.Resource("clusterqueues"), name)
		}
		return answer, nil
	}, nil
}

func (s *server) workloads(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	filter := dashboard.WorkloadFilter{
		List:      q.oneOf("list", []string{dashboard.ListPending, dashboard.ListHolding, dashboard.ListOther}),
		Namespace: q.text("namespace"), Queue: q.text("queue"), Text: q.text("text"),
		State: dashboard.State(q.oneOf("state", texts(dashboard.States()))),
	}
	window := q.window()
	name := r.PathValue("queue")
	return func(v dashboard.Viewer) (any, error) {
		var answer dashboard.Page[dashboard.WorkloadRow]
		isThere := false
		s.Store.Use(func(m *dashboard.Model) { answer, isThere = m.Workloads(v, name, filter, window) })
		if !isThere {
			return nil, apierrors.NewNotFound(kueue.Resource("clusterqueues"), name)
		}
		return answer, nil
	}, q.end()
}

func (s *server) jobSets(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	filter := dashboard.JobSetFilter{
		Namespace: q.text("namespace"), Queue: q.text("queue"), ClusterQueue: q.text("clusterQueue"), Text: q.text("text"),
		State: dashboard.JobSetState(q.oneOf("state", texts(dashboard.JobSetStates()))), Sort: q.oneOf("sort", dashboard.JobSetSorts()),
	}
	window := q.window()
	return func(v dashboard.Viewer) (any, error) {
		s.Store.Use(func(m *dashboard.Model) {
			if m.HasNamespace(filter.Namespace) {
				v.SeesJobSets(filter.Namespace) // this right is needed first
			}
		})
		return dashboard.ScanJobSets(s.Store.Use, v, filter, window), nil
	}, q.end()
}

func (s *server) jobSet(r *http.Request, session *access.Session) (answerer, error) {
	key, err := s.jobSetOf(r, session)
	if err != nil {
		return nil, err
	}
	objects, err := s.JobSet(r.Context(), key)
	return func(v dashboard.Viewer) (answer any, err error) {
		s.Store.Use(func(m *dashboard.Model) { answer = m.JobSet(v, objects, s.now()) })
		return answer, nil
	}, err
}

// jobSetOf returns the JobSet of the path, or an error if the user may not see it. One that may not be seen and one that does not exist look the same.
func (s *server) jobSetOf(r *http.Request, session *access.Session) (types.NamespacedName, error) {
	key, notFound := keyOf(r), apierrors.NewNotFound(jobset.Resource("jobsets"), r.PathValue("name"))
	if !isName(key.Namespace) || !isName(key.Name) {
		return key, notFound
	}
	if session == nil {
		return key, nil
	}
	isAllowed := false
	s.Store.Use(func(m *dashboard.Model) { isAllowed = m.HasJobSet(key) })
	if isAllowed {
		var err error
		if isAllowed, err = session.MayGetJobSet(r.Context(), key); err != nil {
			return key, err
		}
	}
	if !isAllowed {
		return key, notFound
	}
	return key, nil
}

// keyOf returns the name in the path of a request.
func keyOf(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// isName reports whether a name can be in the path of a request to the API server: clients send no requests for others.
func isName(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func (s *server) search(r *http.Request, _ *access.Session) (answerer, error) {
	q := parametersOf(r)
	text := q.text("text")
	return func(v dashboard.Viewer) (any, error) {
		return map[string]any{"items": dashboard.Search(s.Store.Use, v, text)}, nil
	}, q.end()
}

// A reader reads the parameters of a request, and keeps the first error.
type reader struct {
	values url.Values
	// known are the names of those that were read.
	known []string
	err   error
}

func parametersOf(r *http.Request) *reader {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &reader{values: values}
	if err != nil {
		q.fail("the parameters cannot be read: %v", err)
	}
	return q
}

// text returns a parameter, or nothing if it is missing.
func (q *reader) text(name string) string {
	q.known = append(q.known, name)
	switch all := q.values[name]; {
	case len(all) > 1:
		q.fail("%s is given %d times: it may be given once", name, len(all))
	case len(all) == 1 && len(all[0]) > maxText:
		q.fail("%s has %d characters: at most %d are allowed", name, len(all[0]), maxText)
	case len(all) == 1:
		return all[0]
	}
	return ""
}

func (q *reader) oneOf(name string, allowed []string) string {
	text := q.text(name)
	if text != "" && !slices.Contains(allowed, text) {
		q.fail("%s is %q: it must be one of %q", name, text, allowed)
	}
	return text
}

func (q *reader) number(name string, highest int) int {
	text := q.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > highest {
		q.fail("%s is %q: it must be a number from 0 to %d", name, text, highest)
	}
	return n
}

func (q *reader) window() dashboard.Window {
	const highest = 1 << 30
	return dashboard.Window{Offset: q.number("offset", highest), Limit: q.number("limit", dashboard.MaxLimit)}
}

// end returns the first error. A parameter that was not read is one: its user takes it for a filter.
func (q *reader) end() error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			q.fail("%.60q is not a parameter of this path: it must be one of %q", name, q.known)
		}
	}
	return q.err
}

func (q *reader) fail(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest{fmt.Errorf(format, args...)}
	}
}

func texts[S ~string](all []S) []string {
	var plain []string
	for _, s := range all {
		plain = append(plain, string(s))
	}
	return plain
}
