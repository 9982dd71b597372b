package dashboard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A pipeListener accepts the ends of pipes, whose time is that of the test.
type pipeListener struct {
	conns  chan net.Conn
	closed context.Context //nolint:containedctx // it stands for a channel that may be closed twice
	close  context.CancelFunc
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	p.close()
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dialer serves a handler as the manager does, and returns a function that connects a client and sends a text.
func dialer(t *testing.T, handler http.Handler) func(text string) net.Conn {
	t.Helper()
	p := &pipeListener{conns: make(chan net.Conn)}
	// The context of a test ends before its cleanup: then the server may fail to accept before it is stopped.
	p.closed, p.close = context.WithCancel(context.WithoutCancel(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	l := &listener{log: logr.Discard(), handler: handler}
	go func() { ended <- l.serve(ctx, p, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(text string) net.Conn {
		t.Helper()
		client, served := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		p.conns <- served
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// realHandler returns the handler of the manager, with requests that need no API server.
func realHandler(gate *access.Gate) http.Handler {
	return server.New(&server.Config{Store: server.NewStore(), Gate: gate, Page: fstest.MapFS{}, About: func() server.About { return server.About{} }})
}

// A client that announces a body and never sends it loses its connection, whatever it asks for.
func TestBodyThatIsNeverSent(t *testing.T) {
	for _, request := range []string{"GET /sign-in", "POST /sign-out", "POST /sign-in", "PUT /", "GET /api/v1/nothing"} {
		for _, length := range []string{"Content-Length: 9", "Transfer-Encoding: chunked"} {
			synctest.Test(t, func(t *testing.T) {
				client := dialer(t, realHandler(access.New(&access.Config{})))(request + " HTTP/1.1\r\nHost: page\r\n" + length + "\r\n\r\n")
				began := time.Now()
				if err := client.SetReadDeadline(began.Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				_, err := io.ReadAll(client)
				if took := time.Since(began); err != nil || took > 2*bodyTime {
					t.Errorf("%s with %s keeps its connection for %v: %v", request, length, took, err)
				}
			})
		}
	}
}

// A client that sends requests and receives no answers loses its connection, and gets no late answer.
func TestClientThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := dialer(t, realHandler(access.New(&access.Config{})))(strings.Repeat("GET /sign-in HTTP/1.1\r\nHost: page\r\n\r\n", 20))
		time.Sleep(2 * writeTime)
		if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("it still has its connection: %d, %v", n, err)
		}
	})
}

// The limits of answers end no stream of events, and none of the answers that follow on the same connection.
func TestStreamOutlivesLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := dialer(t, realHandler(nil))
		client := dial("GET /api/v1/events HTTP/1.1\r\nHost: page\r\n\r\n")
		began := time.Now()
		if err := client.SetReadDeadline(began.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(client)
		for time.Since(began) < 10*writeTime {
			if !lines.Scan() {
				t.Fatalf("the stream ends after %v: %v", time.Since(began), lines.Err())
			}
		}
		other := dial("GET /api/v1/about HTTP/1.1\r\nHost: page\r\n\r\n")
		answers := bufio.NewReader(other)
		for range 10 {
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v", answer.Status, err)
			}
			_ = answer.Body.Close()
			time.Sleep(idleTime - time.Second)
			if _, err := io.WriteString(other, "GET /api/v1/about HTTP/1.1\r\nHost: page\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
