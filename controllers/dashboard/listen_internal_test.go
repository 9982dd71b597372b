package dashboard

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/webserver"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A handler that panics, and a request with huge headers, get an error, and others are answered. The listener ends with its context, though a stream
// of events is open.
func TestListener(t *testing.T) {
	logged := make(chan string, 10)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	secure, err := webserver.Secure(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{
		address: address, secure: secure,
		log: funcr.New(func(_, args string) { logged <- args }, funcr.Options{}),
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/panic":
				panic("broken")
			case "/stream":
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Start(ctx) }()
	if text := <-logged; !strings.Contains(text, "Serving the dashboard") {
		t.Fatalf("logged %s", text)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(path, header string) (status int, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", header)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		if path == "/stream" {
			return response.StatusCode, ""
		}
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(data)
	}
	if status, body := get("/panic", ""); status != http.StatusInternalServerError || strings.Contains(body, "broken") {
		t.Errorf("a panic: %d %s", status, body)
	}
	if text := <-logged; !strings.Contains(text, "panic: broken") || !strings.Contains(text, "/panic") {
		t.Errorf("logged %s", text)
	}
	if status, _ := get("/", strings.Repeat("x", 64<<10)); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("huge headers: %d", status)
	}
	if status, _ := get("/", ""); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
	if status, _ := get("/stream", ""); status != http.StatusOK {
		t.Errorf("a stream: %d", status)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the listener does not end")
	}
}

// A panic about one object is reported, and the next one is shown.
func TestFeedSurvivesPanics(t *testing.T) {
	var logged []string
	f := &feed{store: server.NewStore(), log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}
	object := &kueue.Workload{}
	object.Namespace, object.Name = "team", "odd"
	f.use(object, func(*model.Model) { panic("broken") })
	before := f.store.Version()
	f.use(object, func(m *model.Model) { m.Observe(object) })
	if f.store.Version() == before || len(logged) != 1 || !strings.Contains(logged[0], "panic: broken") || !strings.Contains(logged[0], "odd") {
		t.Errorf("logged %v", logged)
	}
}

// A panic while usage is sampled is reported, and the next sample is taken.
func TestSamplesSurvivePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		f := &feed{store: &server.Store{}, log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})} // it has no Model
		ctx, cancel := context.WithTimeout(t.Context(), 2*model.SampleInterval+time.Second)
		defer cancel()
		if err := f.Start(ctx); err != nil {
			t.Error(err)
		}
		if text := strings.Join(logged, ""); len(logged) != 3 || strings.Count(text, "Sampling usage") != 2 || strings.Count(text, "everything has been read") != 1 {
			t.Errorf("logged %v", logged)
		}
	})
}
