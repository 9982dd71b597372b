package webserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"
)

const patience = 20 * time.Second

// serve serves a handler within limits, and returns its address.
func serve(t *testing.T, limits Limits, secure *tls.Config, handler http.HandlerFunc) (address string) {
	t.Helper()
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	on := Guard(server, plain, limits)
	if secure != nil {
		on = tls.NewListener(on, secure)
	}
	go func() {
		if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	return plain.Addr().String()
}

func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// isClosed waits until the server has closed a connection.
func isClosed(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	problem, ok := errors.AsType[net.Error](err)
	return err != nil && (!ok || !problem.Timeout())
}

func ask(c net.Conn) error {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// Connections without a request make no other client wait, also if they have the same address, and fill all that the server has.
func TestSilentConnections(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	certificates.Close()
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }
	for name, secure := range map[string]*tls.Config{"plain": nil, "TLS": {Certificates: certificates.TLS.Certificates}} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, Limits{Total: 20, Quiet: 8}, secure, answer)
			for i := range 60 {
				silent := dial(t, fmt.Sprintf("127.0.0.%d", 1+i%3), address)
				if i%2 == 0 {
					if _, err := io.WriteString(silent, "G"); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, from := range []string{"127.0.0.1", "127.0.0.9"} {
				client := dial(t, from, address)
				if secure != nil {
					client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
				}
				if err := ask(client); err != nil {
					t.Errorf("a client from %s: %v", from, err)
				}
			}
		})
	}
}

// The oldest connection of the address that has the most is closed first; a connection with a request never is.
func TestVictims(t *testing.T) {
	busy, release := make(chan struct{}), make(chan struct{})
	address := serve(t, Limits{Total: 4, Quiet: 4}, nil, func(http.ResponseWriter, *http.Request) {
		busy <- struct{}{}
		<-release
	})
	first := dial(t, "127.0.0.1", address)
	var asked sync.WaitGroup
	asked.Go(func() {
		if err := ask(first); err != nil {
			t.Errorf("a connection with a request: %v", err)
		}
	})
	<-busy
	old, middle := dial(t, "127.0.0.1", address), dial(t, "127.0.0.1", address)
	other := dial(t, "127.0.0.2", address)
	fifth := dial(t, "127.0.0.3", address)
	if !isClosed(old) {
		t.Error("the oldest connection of the address with the most stays open")
	}
	for name, c := range map[string]net.Conn{"the second one": middle, "that of another address": other, "the new one": fifth} {
		asked.Go(func() {
			if err := ask(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		<-busy
	}
	if sixth := dial(t, "127.0.0.4", address); !isClosed(sixth) {
		t.Error("all connections have requests, and another one is accepted")
	}
	close(release)
	asked.Wait()
}

// A connection that has been answered counts as one without a request again.
func TestAnsweredConnection(t *testing.T) {
	address := serve(t, Limits{Total: 100, Quiet: 1}, nil, func(http.ResponseWriter, *http.Request) {})
	first := dial(t, "127.0.0.1", address)
	if err := ask(first); err != nil {
		t.Fatal(err)
	}
	second := dial(t, "127.0.0.1", address)
	if !isClosed(first) {
		t.Error("the connection that was answered stays open")
	}
	if err := ask(second); err != nil {
		t.Error(err)
	}
}

func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"10.1.2.3:4":             "10.1.2.3/32",
		"[::ffff:10.1.2.3]:4":    "10.1.2.3/32",
		"[2001:db8:1:2:3::4]:5":  "2001:db8:1:2::/64",
		"[fe80::1:2:3:4%eth0]:5": "fe80::/64",
	} {
		if got := addressOf(remoteConn{remote: remote}); got != netip.MustParsePrefix(want) {
			t.Errorf("the address of %s is %s, want %s", remote, got, want)
		}
	}
}

type remoteConn struct {
	net.Conn
	remote string
}

func (r remoteConn) RemoteAddr() net.Addr { return namedAddr(r.remote) }

type namedAddr string

func (n namedAddr) Network() string { return "tcp" }
func (n namedAddr) String() string  { return string(n) }
