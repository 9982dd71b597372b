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

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/snapshot"
)

// updateInterval is the shortest time between two events of a stream, and keepAlive the longest.
const (
	updateInterval = time.Second
	keepAlive      = 15 * time.Second
)

// contentPolicy lets the page load its own files and no others.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A Config configures a server.
type Config struct {
	// Store has the Model.
	Store *Store
	// JobSet reads a JobSet with what belongs to it.
	JobSet func(ctx context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error)
	// Viewer returns what the sender of a request may see. Nil stands for all objects of the Model.
	Viewer func(r *http.Request) (dashboard.Viewer, error)
	// About describes what is served.
	About func() About
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
	// IsSynced is true if all objects have been read once.
	IsSynced bool `json:"synced"`
	// Namespaces are those that were read. All were read if it is empty.
	Namespaces []string `json:"namespaces,omitempty"`
	// Gaps are the kinds of which objects are missing.
	Gaps []snapshot.Gap `json:"gaps,omitempty"`
}

// New returns a handler.
func New(config *Config) http.Handler {
	s := &server{Config: config}
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1/about", s.answer(s.about))
	api.HandleFunc("GET /api/v1/queues", s.answer(s.queues))
	api.HandleFunc("GET /api/v1/queues/{queue}", s.answer(s.queue))
	api.HandleFunc("GET /api/v1/queues/{queue}/workloads", s.answer(s.workloads))
	api.HandleFunc("GET /api/v1/jobsets", s.answer(s.jobSets))
	api.HandleFunc("GET /api/v1/jobsets/{namespace}/{name}", s.answer(s.jobSet))
	api.HandleFunc("GET /api/v1/search", s.answer(s.search))
	api.HandleFunc("GET /api/v1/events", s.events)
	api.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Errorf("%s is not served", r.URL.Path))
	})
	api.Handle("GET /", http.FileServerFS(config.Page))
	return s.protect(api)
}

// A server answers requests.
type server struct{ *Config }

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
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, errors.New("the dashboard only reads; use kubectl to change objects"))
		case s.Token != "" && !s.isKnown(w, r):
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// answer returns a handler that writes the JSON of what f returns.
func (s *server) answer(f func(r *http.Request, v dashboard.Viewer) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var viewer dashboard.Viewer
		if s.Viewer != nil {
			var err error
			if viewer, err = s.Viewer(r); err != nil {
				writeError(w, statusOf(err), err)
				return
			}
		}
		body, err := f(r, viewer)
		if err != nil {
			writeError(w, statusOf(err), err)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

// A badRequest is an error in the parameters of a request.
type badRequest struct{ error }

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest {
		return int(status.Status().Code)
	}
	if _, isBad := errors.AsType[badRequest](err); isBad {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
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

// events sends the version of the Model when it has changed, at most once a second.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	if s.Viewer != nil {
		if _, err := s.Viewer(r); err != nil {
			writeError(w, statusOf(err), err)
			return
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(updateInterval)
	defer ticker.Stop()
	var sent time.Time
	for last, isFirst := uint64(0), true; ; isFirst = false {
		version := s.Store.Version()
		var err error
		switch {
		case isFirst || version != last:
			last, sent = version, time.Now()
			_, err = fmt.Fprintf(w, "event: change\ndata: %d\n\n", version)
		case time.Since(sent) >= keepAlive:
			sent = time.Now()
			_, err = fmt.Fprint(w, ": no change\n\n")
		}
		if err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}
