// Package server serves the dashboard over HTTP: the page, the answers of a Model as JSON, and a stream of events that reports changes. It only
// reads: every method other than GET and HEAD is refused.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/snapshot"
)

// answerTime is how long a request may wait for its answer.
const answerTime = 15 * time.Second

// contentPolicy lets the page load its own files and no others.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A Config configures a server.
type Config struct {
	// Store has the Model.
	Store *Store
	// JobSet reads a JobSet with what belongs to it.
	JobSet func(ctx context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error)
	// Reader returns what reads objects for a session, which is nil without a Gate: what the Model does not keep is read when a user asks for it.
	Reader func(session *access.Session) client.Reader
	// Gate decides what the sender of a request may see, and users sign in with a token of theirs. Nil stands for all objects of the Model.
	Gate *access.Gate
	// About describes what is served.
	About func() About
	// Now returns the time for which answers are. Nil stands for the clock.
	Now func() time.Time
	// Page has the files of the page.
	Page fs.FS
	// Hosts are the values of the header Host that are served. All are served if it is empty.
	Hosts []string
	// Token must be in the first request of a browser. It is not needed if it is empty.
	Token string
	// Cookie is the name of the cookie that keeps the token.
	Cookie string
}

// An About describes what is served.
type About struct {
	// Version is the version of Tranche.
	Version string `json:"version"`
	// Source is the cluster, as a kubeconfig names it, and User its user.
	Source string `json:"source,omitempty"`
	User   string `json:"user,omitempty"`
	// TakenAt is when the snapshot was taken that is shown. It is zero if a cluster is shown as it is now.
	TakenAt time.Time `json:"takenAt,omitzero"`
	// CanSignOut is true if the user has signed in on the page.
	CanSignOut bool `json:"canSignOut,omitempty"`
	// IsSynced is true if all objects have been read once.
	IsSynced bool `json:"synced"`
	// Namespaces are those that were read. All were read if it is empty.
	Namespaces []string `json:"namespaces,omitempty"`
	// Gaps are the kinds of which objects are missing.
	Gaps []snapshot.Gap `json:"gaps,omitempty"`
	// IsStale is true if the API server does not answer, so that what is shown may have changed.
	IsStale bool `json:"stale,omitempty"`
	// WithoutLeader is a sentence with the time since which no manager has led. It is empty if one does, or if that is not known.
	WithoutLeader string `json:"withoutLeader,omitempty"`
}

// New returns a handler.
func New(config *Config) http.Handler {
	s := &server{Config: config, signInPolicy: signInPolicy(), now: config.Now, reading: make(chan struct{}, maxReading)}
	if s.now == nil {
		s.now = time.Now
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1/about", s.answer(s.about))
	api.HandleFunc("GET /api/v1/namespaces", s.answer(s.namespaces))
	api.HandleFunc("GET /api/v1/queues", s.answer(s.queues))
	api.HandleFunc("GET /api/v1/queues/{queue}", s.answer(s.queue))
	api.HandleFunc("GET /api/v1/queues/{queue}/workloads", s.answer(s.workloads))
	api.HandleFunc("GET /api/v1/overview", s.answer(s.overview))
	api.HandleFunc("GET /api/v1/localqueues", s.answer(s.localQueues))
	api.HandleFunc("GET /api/v1/localqueues/{namespace}/{name}", s.answer(s.localQueue))
	api.HandleFunc("GET /api/v1/localqueues/{namespace}/{name}/workloads", s.answer(s.localQueueWorkloads))
	api.HandleFunc("GET /api/v1/jobsets", s.answer(s.jobSets))
	api.HandleFunc("GET /api/v1/jobsets/{namespace}/{name}", s.answer(s.jobSet))
	s.addDetails(api)
	api.HandleFunc("GET /api/v1/search", s.answer(s.search))
	api.HandleFunc("GET /api/v1/events", s.events)
	api.HandleFunc("GET /api/", s.answer(func(r *http.Request, _ *access.Session) (answerer, error) {
		return nil, notServed{fmt.Errorf("%s is not served", r.URL.Path)}
	}))
	files := http.FileServerFS(config.Page)
	if config.Gate != nil {
		s.addSignIn(api)
		files = s.signedIn(files)
	}
	api.Handle("GET /", files)
	return s.protect(api)
}

// A server answers requests.
type server struct {
	*Config
	signInPolicy string
	now          func() time.Time
	// reading has an element for each read of the API server.
	reading chan struct{}
}

// protect refuses requests that a page of another site may have sent, and sets the headers that limit what the page can do.
func (s *server) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case len(s.Hosts) > 0 && !slices.Contains(s.Hosts, r.Host):
			writeError(w, http.StatusMisdirectedRequest, fmt.Errorf("the host %q is not served; open the URL that was printed", r.Host))
		case r.Method != http.MethodGet && r.Method != http.MethodHead && !s.isSignIn(r):
			h.Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, errors.New("the dashboard only reads; use kubectl to change objects"))
		case s.Token != "" && !s.isKnown(w, r):
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isSignIn reports whether a request is one of the two that are no reads: they change the cookie of their sender.
func (s *server) isSignIn(r *http.Request) bool {
	return s.Gate != nil && r.Method == http.MethodPost && (r.URL.Path == "/sign-in" || r.URL.Path == "/sign-out")
}

// An answerer computes an answer for a viewer, from the Model alone: it may be called several times.
type answerer func(v dashboard.Viewer) (any, error)

// answer returns a handler that writes the JSON of what an answerer returns. Prepare makes the answerer of a request. The session is nil if there is
// no Gate.
func (s *server) answer(prepare func(r *http.Request, session *access.Session) (answerer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime + writeTime)) // servers of tests may have none
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		body, err := s.compute(r.WithContext(ctx), prepare)
		if err != nil {
			s.writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

// compute returns an answer for the user of a request.
func (s *server) compute(r *http.Request, prepare func(*http.Request, *access.Session) (answerer, error)) (body any, err error) {
	session, err := s.session(r.Context(), r)
	if err != nil {
		return nil, err
	}
	if session == nil {
		f, err := prepare(r, nil)
		if err != nil {
			return nil, err
		}
		return f(dashboard.Viewer{})
	}
	done, err := session.Turn(r.Context())
	if err != nil {
		return nil, err
	}
	var took time.Duration
	defer func() { done(took) }()
	f, err := prepare(r, session)
	if err != nil {
		return nil, err
	}
	for {
		started := time.Now()
		body, err := f(session.Viewer())
		took += time.Since(started)
		// What the viewer may not see and what is not known yet look the same.
		hasLearned, failure := session.Learn(r.Context())
		if failure != nil {
			return nil, failure
		}
		if !hasLearned {
			return body, err
		}
	}
}

// A badRequest is an error in the parameters of a request, notServed one in its path, and a forbidden one in its headers or the rights of its sender.
type (
	badRequest struct{ error }
	notServed  struct{ error }
	forbidden  struct{ error }
)

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest {
		return int(status.Status().Code)
	}
	if _, isBad := errors.AsType[badRequest](err); isBad {
		return http.StatusBadRequest
	}
	if _, isUnknown := errors.AsType[notServed](err); isUnknown {
		return http.StatusNotFound
	}
	if _, isForbidden := errors.AsType[forbidden](err); isForbidden {
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

// writeError also tells the page whether its user has to sign in.
func (s *server) writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if s.Gate == nil || status != http.StatusUnauthorized {
		writeError(w, status, err)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	writeJSON(w, status, map[string]any{"error": err.Error(), "signIn": true})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that has left gets no answer
}
