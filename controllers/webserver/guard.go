package webserver

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// ipv6Bits is how many bits of an IPv6 address identify a client: it can choose the others.
const ipv6Bits = 64

// Limits are numbers of connections.
type Limits struct {
	// Total bounds all of them.
	Total int
	// Quiet bounds those of one address that have no request: they are new, or wait for the next request. The clients of a proxy have one address.
	Quiet int
}

// Guard returns a listener that accepts the connections of another one within the limits, without letting clients wait for those of others: when there are too
// many, connections that have no request are closed, the oldest ones of the address that has the most first.
//
// The server must serve it, or a TLS listener over it: its ConnState is set, to observe which connections have requests. Without a server none is known to
// have one.
func Guard(server *http.Server, listener net.Listener, limits Limits) net.Listener {
	g := &guard{Listener: listener, limits: limits, quiet: map[netip.Prefix][]*conn{}}
	if server != nil {
		server.ConnState = g.observe
	}
	return g
}

type guard struct {
	net.Listener
	limits Limits

	mu sync.Mutex
	// open is how many connections are open.
	open int
	// quiet has the connections without a request, by address, the oldest ones first.
	quiet map[netip.Prefix][]*conn
}

// A conn is one connection. Its guard protects its fields.
type conn struct {
	net.Conn
	guard    *guard
	from     netip.Prefix
	isClosed bool
}

// Accept waits for the next connection. It closes others, or the new one, if there are too many.
func (g *guard) Accept() (net.Conn, error) {
	for {
		accepted, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, guard: g, from: addressOf(accepted)}
		victim := g.admit(c)
		if victim != nil {
			_ = victim.Close()
		}
		if victim != c {
			return c, nil
		}
	}
}

// admit adds a connection, and returns the one to close, if there is one too many.
func (g *guard) admit(c *conn) (victim *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open++
	g.quiet[c.from] = append(g.quiet[c.from], c)
	if len(g.quiet[c.from]) > g.limits.Quiet {
		return g.quiet[c.from][0]
	}
	if g.open <= g.limits.Total {
		return nil
	}
	most := c.from
	for from, conns := range g.quiet {
		if len(conns) > len(g.quiet[most]) {
			most = from
		}
	}
	return g.quiet[most][0]
}

// observe notes whether a connection has a request.
func (g *guard) observe(observed net.Conn, state http.ConnState) {
	if secure, ok := observed.(*tls.Conn); ok {
		observed = secure.NetConn()
	}
	c, ok := observed.(*conn)
	if !ok {
		return
	}
	if g.note(c, state) {
		_ = c.Close()
	}
}

// note notes the state of a connection. It reports whether to close the connection: it waits for its next request, and its address has enough others.
func (g *guard) note(c *conn, state http.ConnState) (isTooMany bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateActive, http.StateHijacked:
		g.dropQuiet(c)
	case http.StateIdle:
		if c.isClosed {
			return false
		}
		if len(g.quiet[c.from]) >= g.limits.Quiet {
			return true
		}
		g.quiet[c.from] = append(g.quiet[c.from], c)
	case http.StateNew, http.StateClosed: // Accept and Close have noted that
	}
	return false
}

// Close closes the connection.
func (c *conn) Close() error {
	c.guard.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		c.guard.open--
		c.guard.dropQuiet(c)
	}
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

func (g *guard) dropQuiet(c *conn) {
	left := slices.DeleteFunc(g.quiet[c.from], func(other *conn) bool { return other == c })
	if len(left) == 0 {
		delete(g.quiet, c.from)
		return
	}
	g.quiet[c.from] = left
}

// addressOf returns the address of a client. All clients whose addresses are not IP addresses have the same.
func addressOf(c net.Conn) netip.Prefix {
	address, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := address.Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = ipv6Bits
	}
	prefix, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
