package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/dashboard/detail"
)

// maxReading is how many answers are read from the API server at a time: each may need the memory of 10,000 pods.
const maxReading = 4

// addDetails adds what is read from the API server when a user asks for it.
func (s *server) addDetails(api *http.ServeMux) {
	for path, read := range map[string]detailReader{
		"queues/{name}/settings":                  settingsOf(s, "ClusterQueue", "clusterqueues", (*dashboard.Model).HasClusterQueue, dashboard.ClusterQueueSettings),
		"localqueues/{namespace}/{name}/settings": settingsOf(s, "LocalQueue", "localqueues", (*dashboard.Model).HasLocalQueue, dashboard.LocalQueueSettings),
		"jobsets/{namespace}/{name}/yaml":         s.jobSetYAML,
		"jobsets/{namespace}/{name}/pods":         s.pods,
		"jobsets/{namespace}/{name}/events":       s.jobSetEvents,
	} {
		api.HandleFunc("GET /api/v1/"+path, s.read(read))
	}
}

// A detailReader reads an answer. The session is nil if there is no Gate.
type detailReader func(r *http.Request, session *access.Session, c client.Reader) (any, error)

// read returns a handler that writes the JSON of what is read. A user waits while another answer of theirs is read, and then for a time: each costs the API server
// lists.
func (s *server) read(answer detailReader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime + writeTime)) // servers of tests may have none
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		body, err := s.readInTurn(r.WithContext(ctx), answer)
		if err != nil {
			s.writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

func (s *server) readInTurn(r *http.Request, answer detailReader) (any, error) {
	session, err := s.session(r.Context(), r)
	if err != nil {
		return nil, err
	}
	if session != nil {
		done, err := session.ReadTurn(r.Context())
		if err != nil {
			return nil, err
		}
		began := time.Now()
		defer func() { done(time.Since(began)) }()
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-r.Context().Done():
		return nil, apierrors.NewTooManyRequests("other requests are being answered; retry", 1)
	}
	return answer(r, session, s.Reader(session))
}

// A settingsAnswer describes a queue.
type settingsAnswer struct {
	Settings []dashboard.Setting `json:"settings"`
	*detail.ObjectAnswer
}

// settingsOf returns a reader of the settings of a kind of queues. has reports whether one was observed: rights are reviewed only for names that exist. To users, one
// that may not be read and one that does not exist look the same.
func settingsOf[T any](s *server, kind, resource string, has func(*dashboard.Model, types.NamespacedName) bool, describe func(*T) []dashboard.Setting) detailReader {
	return func(r *http.Request, session *access.Session, c client.Reader) (any, error) {
		key := keyOf(r)
		notFound := apierrors.NewNotFound(kueue.Resource(resource), key.Name)
		isThere := true
		if session != nil {
			s.Store.Use(func(m *dashboard.Model) { isThere = has(m, key) })
		}
		if !isThere || !isName(key.Name) || key.Namespace != "" && !isName(key.Namespace) {
			return nil, notFound
		}
		var queue T
		object, err := detail.Object(r.Context(), c, kueue.SchemeGroupVersion.WithKind(kind), key, &queue)
		switch {
		case session != nil && apierrors.IsForbidden(err):
			return nil, notFound
		case err != nil:
			return nil, err
		}
		return settingsAnswer{describe(&queue), object}, nil
	}
}

func (s *server) jobSetYAML(r *http.Request, session *access.Session, c client.Reader) (any, error) {
	key, err := s.jobSetOf(r, session)
	if err != nil {
		return nil, err
	}
	return detail.Object(r.Context(), c, jobset.GroupVersion.WithKind("JobSet"), key, nil)
}

func (s *server) pods(r *http.Request, session *access.Session, c client.Reader) (any, error) {
	q := parametersOf(r)
	stage, window := q.text("stage"), q.window()
	if err := q.end(); err != nil {
		return nil, err
	}
	key, err := s.jobSetOf(r, session)
	if err != nil {
		return nil, err
	}
	answer, err := detail.Pods(r.Context(), c, key, stage, window)
	if errors.Is(err, detail.ErrNoStage) {
		err = badRequest{fmt.Errorf("stage is %q: JobSet %s has no such stage", stage, key)}
	}
	return answer, err
}

func (s *server) jobSetEvents(r *http.Request, session *access.Session, c client.Reader) (any, error) {
	q := parametersOf(r)
	filter := detail.EventFilter{Type: q.oneOf("type", []string{corev1.EventTypeNormal, corev1.EventTypeWarning}), Window: q.window()}
	if err := q.end(); err != nil {
		return nil, err
	}
	key, err := s.jobSetOf(r, session)
	if err != nil {
		return nil, err
	}
	workloadsOf := func(jobSet types.UID) (keys []types.NamespacedName) {
		s.Store.Use(func(m *dashboard.Model) { keys = m.WorkloadsOf(key.Namespace, jobSet) })
		return keys
	}
	return detail.Events(r.Context(), c, key, workloadsOf, filter)
}
