package pgfault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
)

// textsMax bounds how many texts a proxy remembers.
const textsMax = 10_000

// Proxy passes what its clients say on to a server, but for the faults.
type Proxy struct {
	url      string // for clients
	upstream string // host:port of the server
	listener net.Listener
	dice     *dice
	sessions sync.WaitGroup
	gone     context.Context // ends with the proxy
	close    context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]bool
	texts map[string]bool
	order []string
	err   error

	refusals []Refusal
	refused  int
}

// Start begins a proxy to the server of a postgres:// URL, on a port of its own.
// It runs until Close.
func Start(server string, f Faults) (*Proxy, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	at, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("URL of the server: %w", err)
	}
	if at.Port() == "" {
		return nil, fmt.Errorf("URL of the server: host %q, want host:port", at.Host)
	}
	p := &Proxy{upstream: at.Host, dice: newDice(f), conns: map[net.Conn]bool{}, texts: map[string]bool{}}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	at.Host = p.listener.Addr().String()
	p.url = at.String()
	p.gone, p.close = context.WithCancel(context.Background())
	p.sessions.Go(p.accept)
	return p, nil
}

// URL is the server's with the proxy's address.
func (p *Proxy) URL() string { return p.url }

// Counts are how many faults of each kind have happened.
func (p *Proxy) Counts() map[Kind]int {
	p.dice.mu.Lock()
	defer p.dice.mu.Unlock()
	return maps.Clone(p.dice.counts)
}

// Requests are how many requests came, from which Faults.CutAt counts.
func (p *Proxy) Requests() int {
	p.dice.mu.Lock()
	defer p.dice.mu.Unlock()
	return p.dice.requests
}

// Texts are the SQL texts that clients sent, each once, in the order they came.
func (p *Proxy) Texts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

// Close ends all connections and waits for them. It returns what went wrong in
// the proxy itself.
func (p *Proxy) Close() error {
	p.close()
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.sessions.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, p.err)
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.sessions.Go(func() { p.serve(conn) })
	}
}

// serve is one connection from its beginning to its end.
func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return // the client finds out as well
	}
	defer p.forget(server)
	if !p.keep(server) {
		return
	}
	if err := newSession(p, client, server).run(); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = errors.Join(p.err, err)
	}
}

// keep notes a connection so that Close can end it; it may be too late for that.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return p.gone.Err() == nil
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *Proxy) seen(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == "" || p.texts[text] {
		return
	}
	if len(p.order) == textsMax {
		p.err = errors.Join(p.err, fmt.Errorf("more than %d different texts", textsMax))
		return
	}
	p.texts[text] = true
	p.order = append(p.order, text)
}
