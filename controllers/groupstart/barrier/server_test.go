package barrier_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

const (
	// long is more than any step takes, and short expires before anything happens.
	long  = time.Minute
	short = 100 * time.Millisecond
)

var group = types.NamespacedName{Namespace: "ml", Name: "js"}

// tally is a Counter.
type tally struct {
	started, pods int
	err           error
}

func (c tally) Count(context.Context, types.NamespacedName) (started, pods int, err error) {
	return c.started, c.pods, c.err
}

// serve runs a Server until the test ends, and returns its address and a function that stops it earlier.
func serve(t *testing.T, noticeStore *barrier.NoticeStore, counter barrier.Counter, address string) (where string, stop func()) {
	t.Helper()
	server := barrier.NewServer(noticeStore, counter, address)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return listener.Addr().String(), cancel
}

// noticeAt returns a notice of the group that sends its pods to an address.
func noticeAt(address string, released ...string) barrier.Notice {
	return barrier.Notice{Endpoint: "http://" + address + barrier.Path(group), Token: "secret", Pods: 3, Released: released}
}

// wait runs a Waiter as a pod does.
func wait(t *testing.T, notice barrier.Notice, timeout time.Duration) <-chan error {
	t.Helper()
	dir := t.TempDir()
	mount(t, dir, notice)
	ctx, done := t.Context(), make(chan error, 1)
	go func() { done <- (&barrier.Waiter{Dir: dir, Signal: "a.1", Timeout: timeout}).Wait(ctx) }()
	return done
}

// expectWaiting waits until the given number of pods waits.
func expectWaiting(t *testing.T, noticeStore *barrier.NoticeStore, want int) {
	t.Helper()
	for deadline := time.Now().Add(long); noticeStore.Waiting() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d pods wait, want %d", noticeStore.Waiting(), want)
		}
	}
}

// TestServerReleases: a waiting pod is answered when the notice changes, even if its file does not.
func TestServerReleases(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{}, "127.0.0.1:0")
	noticeStore.Post(group, noticeAt(address))
	done := wait(t, noticeAt(address), long)
	expectWaiting(t, noticeStore, 1)
	noticeStore.Post(group, noticeAt(address, "b.1"))
	noticeStore.Post(group, noticeAt(address, "a.1", "b.1"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	expectWaiting(t, noticeStore, 0)
}

// TestPodAsksAgainAfterTheServerRestarts: a pod keeps asking while no server answers.
func TestPodAsksAgainAfterTheServerRestarts(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, stop := serve(t, noticeStore, tally{}, "127.0.0.1:0")
	noticeStore.Post(group, noticeAt(address))
	done := wait(t, noticeAt(address), long)
	expectWaiting(t, noticeStore, 1)
	stop()
	expectWaiting(t, noticeStore, 0)
	other := barrier.NewNoticeStore(10)
	for {
		// The first one may still hold the address.
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err == nil {
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	serve(t, other, tally{}, address)
	other.Post(group, noticeAt(address, "a.1"))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServerCounts: a pod whose request has timed out gets the number of started pods.
func TestServerCounts(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{started: 2, pods: 3}, "127.0.0.1:0")
	noticeStore.Post(group, noticeAt(address, "other.1"))
	err := <-wait(t, noticeAt(address), short)
	timeout, ok := errors.AsType[*barrier.TimeoutError](err)
	if !ok || timeout.Started != 2 || timeout.Pods != 3 || err.Error() != "timed out after 100ms: 2 of 3 pods of the group had started" {
		t.Errorf("err = %v", err)
	}
}

// TestServerRefuses: the Server answers no question without the token of the group, and no pod accepts an answer without it.
func TestServerRefuses(t *testing.T) {
	cases := map[string]struct {
		posted map[types.NamespacedName]barrier.Notice
		room   int
		err    error
		want   string
	}{
		"another token": {
			map[types.NamespacedName]barrier.Notice{group: {Token: "other", Released: []string{"a.1"}}},
			10, nil,
			"responded with status 403: the group does not exist, or has another token than the request",
		},
		"another group": {
			map[types.NamespacedName]barrier.Notice{{Namespace: "other", Name: "js"}: {Token: "secret", Released: []string{"a.1"}}},
			10, nil,
			"responded with status 403: the group does not exist, or has another token than the request",
		},
		"a group without a token": {
			map[types.NamespacedName]barrier.Notice{group: {Released: []string{"a.1"}}},
			10, nil,
			"responded with status 403: the group does not exist, or has another token than the request",
		},
		"too many": {
			map[types.NamespacedName]barrier.Notice{group: {Token: "secret"}},
			0, nil,
			"responded with status 503: too many pods wait for a response of this replica of the manager, retry",
		},
		"no count": {
			map[types.NamespacedName]barrier.Notice{group: {Token: "secret"}},
			10, errors.New("the cache is broken"),
			"responded with status 503: this replica of the manager could not count the pods, retry: the cache is broken",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			noticeStore := barrier.NewNoticeStore(c.room)
			address, _ := serve(t, noticeStore, tally{err: c.err}, "127.0.0.1:0")
			for key, notice := range c.posted {
				noticeStore.Post(key, notice)
			}
			err := <-wait(t, noticeAt(address), short)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

// TestGroupWithoutATokenIsNotServed: the Server answers no question about a group without a token, whatever token the question uses.
func TestGroupWithoutATokenIsNotServed(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{}, "127.0.0.1:0")
	noticeStore.Post(group, barrier.Notice{Released: []string{"a.1"}})
	guess := noticeAt(address)
	guess.Token = "none"
	if err := <-wait(t, guess, short); err == nil || !strings.Contains(err.Error(), "status 403") {
		t.Errorf("err = %v", err)
	}
}

// TestUnauthenticReleasesAreIgnored: an impostor of the manager has no token to sign its answers.
func TestUnauthenticReleasesAreIgnored(t *testing.T) {
	for name, mac := range map[string]string{"no MAC": "", "a MAC with another token": strings.Repeat("0", 64), "the MAC of the question": "echo"} {
		t.Run(name, func(t *testing.T) {
			impostor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if mac == "echo" {
					w.Header().Set("Tranche-Mac", strings.TrimPrefix(r.Header.Get("Authorization"), "Tranche "))
				} else {
					w.Header().Set("Tranche-Mac", mac)
				}
				_, _ = w.Write([]byte(`{"released":true}`))
			}))
			defer impostor.Close()
			err := <-wait(t, noticeAt(strings.TrimPrefix(impostor.URL, "http://")), short)
			if err == nil || !strings.Contains(err.Error(), "was not signed by the manager") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// TestRoomOfANamespace: one namespace cannot take all the places to wait.
func TestRoomOfANamespace(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(2)
	address, _ := serve(t, noticeStore, tally{pods: 3}, "127.0.0.1:0")
	other := types.NamespacedName{Namespace: "other", Name: "js"}
	elsewhere := noticeAt(address)
	elsewhere.Endpoint = "http://" + address + barrier.Path(other)
	noticeStore.Post(group, noticeAt(address))
	noticeStore.Post(other, elsewhere)
	first := wait(t, noticeAt(address), long)
	expectWaiting(t, noticeStore, 1)
	if err := <-wait(t, noticeAt(address), short); err == nil || !strings.Contains(err.Error(), "too many pods") {
		t.Errorf("a second pod of the namespace: %v", err)
	}
	second := wait(t, elsewhere, long)
	expectWaiting(t, noticeStore, 2)
	noticeStore.Post(group, noticeAt(address, "a.1"))
	noticeStore.Post(other, barrier.Notice{Token: "secret", Released: []string{"a.1"}})
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

// TestAsking: an invalid request is refused, with the reason.
func TestAsking(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{}, "127.0.0.1:0")
	for name, c := range map[string]struct {
		method, path string
		want         int
	}{
		"a write":        {http.MethodPost, barrier.Path(group), http.StatusMethodNotAllowed},
		"something else": {http.MethodGet, "/v1/groups", http.StatusNotFound},
		"no token":       {http.MethodGet, barrier.Path(group) + "?signal=a.1", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil || response.StatusCode != c.want {
				t.Errorf("%d, %v; want %d", response.StatusCode, err, c.want)
			}
		})
	}
}

// TestObserve: the NoticeStore has the content of the ConfigMaps of groups, and wakes requests that wait for a recreated ConfigMap.
func TestObserve(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{pods: 3}, "127.0.0.1:0")
	configMap := func(name string, notice barrier.Notice) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}, Data: notice.Data()}
	}
	noticeStore.Observe(configMap("js", noticeAt(address, "a.1")))
	first := configMap("js-group-scheduling", noticeAt(address))
	noticeStore.Observe(first)
	done := wait(t, noticeAt(address), long)
	expectWaiting(t, noticeStore, 1)
	noticeStore.Observe(configMap("js-group-scheduling", noticeAt(address, "a.1")))
	if err := <-done; err != nil {
		t.Error(err)
	}
	noticeStore.Remove(first)
	if err := <-wait(t, noticeAt(address), short); err == nil || !strings.Contains(err.Error(), "the group does not exist") {
		t.Errorf("err = %v", err)
	}
}

// TestIncompleteRequestsAreClosed: a client that announces more than it sends holds no connection: connections are scarce, and this requires no
// token.
func TestIncompleteRequestsAreClosed(t *testing.T) {
	noticeStore := barrier.NewNoticeStore(10)
	address, _ := serve(t, noticeStore, tally{}, "127.0.0.1:0")
	for name, question := range map[string]string{
		"a body that does not come":    "GET " + barrier.Path(group) + "?signal=a.1 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"a body without an end":        "GET " + barrier.Path(group) + "?signal=a.1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a body for something else":    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"a body that waits for a sign": "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close() //nolint:errcheck // it has been read to its end
			if err := connection.SetDeadline(time.Now().Add(long / 6)); err != nil {
				t.Fatal(err)
			}
			if _, err := connection.Write([]byte(question)); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(connection); err != nil || !strings.Contains(string(answer), " 400 ") {
				t.Errorf("%v after %q, want a refusal and an end", err, answer)
			}
		})
	}
}
