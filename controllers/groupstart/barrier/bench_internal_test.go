package barrier

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Waiting returns how many pods wait.
func (n *NoticeStore) Waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting
}

// The Counter of the benchmark is never asked.
type noPods struct{}

func (noPods) Count(context.Context, types.NamespacedName) (started, pods int, err error) {
	return 0, 0, nil
}

// BenchmarkRelease makes many pods wait, and releases their group. It measures how long it takes until the last pod has its answer, and how
// much memory each pod costs the manager.
func BenchmarkRelease(b *testing.B) {
	for _, waiters := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("%d", waiters), func(b *testing.B) {
			var bytes uint64
			for b.Loop() {
				b.StopTimer()
				noticeStore := NewNoticeStore(2 * waiters)
				listener, stop := listen(b, noticeStore)
				group := types.NamespacedName{Namespace: "ml", Name: "js"}
				noticeStore.Post(group, Notice{Token: "secret"})
				before := memory()
				connections := ask(b, listener, group, waiters)
				for noticeStore.Waiting() != waiters {
					time.Sleep(time.Millisecond)
				}
				bytes += memory() - before
				b.StartTimer()
				noticeStore.Post(group, Notice{Token: "secret", Released: []string{"a.1"}})
				readAll(b, connections)
				b.StopTimer()
				stop()
				b.StartTimer()
			}
			b.ReportMetric(float64(bytes)/float64(b.N)/float64(waiters), "B/waiter")
		})
	}
}

// pipes is a listener in memory, because a process may not open as many files as pods may wait.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accept:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func listen(b *testing.B, noticeStore *NoticeStore) (listener *pipes, stop func()) {
	b.Helper()
	server := NewServer(noticeStore, noPods{}, "")
	listener = &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	return listener, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// ask sends the requests of many pods, with as little overhead as possible on their side.
func ask(b *testing.B, listener *pipes, group types.NamespacedName, waiters int) []net.Conn {
	b.Helper()
	connections := make([]net.Conn, 0, waiters)
	for range waiters {
		ours, theirs := net.Pipe()
		listener.accept <- theirs
		uri := Path(group) + "?signal=a.1&wait=1m"
		_, err := fmt.Fprintf(ours, "GET %s HTTP/1.1\r\nHost: manager\r\nAuthorization: %s%s\r\n\r\n", uri, scheme, signQuestion("secret", uri))
		if err != nil {
			b.Fatal(err)
		}
		connections = append(connections, ours)
	}
	return connections
}

func readAll(b *testing.B, connections []net.Conn) {
	b.Helper()
	for _, connection := range connections {
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != `{"released":true}` {
			b.Fatalf("got %q, %v", body, err)
		}
		if err := connection.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// memory returns the memory that the process uses.
func memory() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse + stats.StackInuse
}
