package barrier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/controllers/webserver"
)

const (
	// longestWait limits how long the Server holds one request. A pod that still has to wait asks again.
	longestWait = time.Minute
	// A client that connects without a request is disconnected soon: connections are scarce.
	headerTimeout = 5 * time.Second
	writeTimeout  = longestWait + 10*time.Second
	maxHeader     = 8 << 10
	// idlers is the number of connections beyond those of waiting pods, for requests that are about to be refused. The pods of a node may have one
	// address.
	idlers = 100
	// Refused pods rely on the mounted file in the meantime.
	retryAfterSeconds = "15"
	// fresh is how long a count is reused: all pods of a group may ask at the same time, and counting costs as much as there are pods.
	fresh = time.Second
)

// A Counter says how many pods of a group have started, and of how many.
type Counter interface {
	// Count reads from a cache.
	Count(ctx context.Context, group types.NamespacedName) (started, pods int, err error)
}

// A Server answers waiting pods. It only reads: any replica of the manager can run one.
type Server struct {
	notices     *NoticeStore
	counter     Counter
	bindAddress string
	mux         *http.ServeMux

	counting sync.Mutex
	// counts has the Answers with the last counts.
	counts *cache.Expiring
}

// NewServer returns a Server that answers with the notices of a NoticeStore, and with the counts of a Counter when a request times out. It
// listens on an address, HOST:PORT or :PORT, when it is started.
func NewServer(notices *NoticeStore, counter Counter, bindAddress string) *Server {
	s := &Server{notices: notices, counter: counter, bindAddress: bindAddress, mux: http.NewServeMux(), counts: cache.NewExpiring()}
	s.mux.HandleFunc("GET "+pathPrefix+"{namespace}/{jobset}", s.answer)
	return s
}

// NeedLeaderElection returns false: every replica answers, because a Service picks any of them.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. The manager calls it when its caches have been filled.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.bindAddress)
	if err != nil {
		return fmt.Errorf("serve waiting pods on %s, which is groupStart.bindAddress: %w", s.bindAddress, err)
	}
	return s.Serve(ctx, listener)
}

// Serve answers on a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	// A pod that was answered rarely asks again within a minute.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() {
		// The contexts of all requests end with this one, so Shutdown does not take long. Waiting pods ask another replica.
		if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Shutting down the server for waiting pods failed")
		}
	})
	defer stop()
	limits := webserver.Limits{Total: s.notices.room + idlers, Quiet: idlers}
	if err := server.Serve(webserver.Guard(server, listener, limits)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve waiting pods on %s: %w", listener.Addr(), err)
	}
	return nil
}

// ServeHTTP answers one request. A request has no body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		s.mux.ServeHTTP(w, r)
		return
	}
	// After the answer the server would wait for the body, and a client that never sends it would keep the connection open.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	http.Error(w, "the request must not have a body", http.StatusBadRequest)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	group := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("jobset")}
	uri := r.URL.RequestURI()
	notice, _, known := s.notices.read(group)
	// A missing group takes as long as a group with another token, and gets the same message.
	mac, _ := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !isSigned(mac, signQuestion(cmp.Or(notice.Token, "none"), uri)) || !known {
		http.Error(w, "the group does not exist, or has another token than the request", http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	wait, err := time.ParseDuration(cmp.Or(query.Get("wait"), "0s"))
	if err != nil || query.Get("signal") == "" {
		http.Error(w, "the parameter signal is required, and the parameter wait must be a duration such as 30s", http.StatusBadRequest)
		return
	}
	leave, err := s.notices.enter(group.Namespace)
	if err != nil {
		w.Header().Set("Retry-After", retryAfterSeconds)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	answer, err := s.await(r.Context(), group, query.Get("signal"), min(wait, longestWait))
	if err != nil {
		http.Error(w, "this replica of the manager could not count the pods, retry: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.write(w, notice.Token, uri, answer)
}

// write sends an answer. A client that does not accept it has disconnected.
func (s *Server) write(w http.ResponseWriter, token, uri string, answer Answer) {
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(answerHeader, signAnswer(token, uri, body))
	_, _ = w.Write(body)
}

// await waits until the signal is released, for at most wait.
func (s *Server) await(ctx context.Context, group types.NamespacedName, signal string, wait time.Duration) (Answer, error) {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	for {
		notice, changed, ok := s.notices.read(group)
		if ok && notice.Releases(signal) {
			return Answer{Released: true}, nil
		}
		// A notice that was removed is posted again, if it is still needed.
		select {
		case <-changed:
		case <-timer.C:
			return s.count(ctx, group)
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// count counts a group, unless it did so a moment ago. The group must exist, or any client could fill the memory.
func (s *Server) count(ctx context.Context, group types.NamespacedName) (Answer, error) {
	s.counting.Lock()
	defer s.counting.Unlock()
	last, _ := s.counts.Get(group)
	if answer, ok := last.(Answer); ok {
		return answer, nil
	}
	started, pods, err := s.counter.Count(ctx, group)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Started: started, Pods: pods}
	s.counts.Set(group, answer, fresh)
	return answer, nil
}
