// Package refuse is a proxy before a dataplane's binary API that refuses, swallows or cuts off chosen requests, as a dataplane may.
package refuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy passes a binary API through, but for what it was told to refuse. Everything else of the dataplane is real.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	rules map[string]*rule
	conns map[net.Conn]bool
	asked []string
	errs  []error
}

// rule is what to do with the requests of one message.
type rule struct {
	fate   fate
	retval int32
	pass   int // requests that pass before
	times  int // -1 is for ever
	hits   int

	content []byte // that a request holds, or it passes
	met     func() // is called before a request that is fatal is swallowed
}

// fate is what becomes of a request.
type fate int

const (
	passed  fate = iota
	refused      // answered with a retval; the dataplane does not see it
	hung         // swallowed: neither seen nor answered
	lost         // done by the dataplane, but no answer comes
	fatal        // swallowed, after the dataplane was killed
)

// Listen serves on path and passes on to the dataplane at target.
func Listen(path, target string) (*Proxy, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the dataplane's clients: %w", err)
	}
	p := &Proxy{target: target, listener: l, rules: map[string]*rule{}, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Refuse answers the next requests of a message (its name without CRC) with retval; times counts them, -1 is for ever.
// Only a message with a reply of its own can be refused: a dump passes.
func (p *Proxy) Refuse(message string, retval int32, times int) {
	p.set(message, &rule{fate: refused, retval: retval, times: times})
}

// RefuseNth refuses one request of a message: the nth from now on, counted from 1.
func (p *Proxy) RefuseNth(message string, retval int32, n int) {
	p.set(message, &rule{fate: refused, retval: retval, times: 1, pass: n - 1})
}

// Hang swallows the next requests of a message: they are not done, and no answer ever comes.
func (p *Proxy) Hang(message string, times int) { p.set(message, &rule{fate: hung, times: times}) }

// Lose lets the dataplane do the next requests of a message, and swallows its answers.
func (p *Proxy) Lose(message string, times int) { p.set(message, &rule{fate: lost, times: times}) }

// Kill swallows each request of a message that holds the content, and calls kill before: it is for a dataplane that dies of
// such a request.
func (p *Proxy) Kill(message, content string, kill func()) {
	p.set(message, &rule{fate: fatal, times: -1, content: []byte(content), met: kill})
}

// Allow ends what Refuse, Hang, Lose or Kill began, and tells how many requests it met.
func (p *Proxy) Allow(message string) (hits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rules[message]; r != nil {
		hits = r.hits
	}
	delete(p.rules, message)
	return hits
}

// Met waits until a rule has met a request of a message.
func (p *Proxy) Met(ctx context.Context, message string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !p.met(message) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a %s: %w", message, ctx.Err())
		}
	}
	return nil
}

func (p *Proxy) met(message string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rules[message]
	return r != nil && r.hits > 0
}

// Asked lists the messages that were requested since it was called last, in the order of their requests.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// Cut drops all connections, as a dataplane that dies does; new ones are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy, waits for its connections, and says what it did not understand of them.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return errors.Join(append(p.errs, err)...)
}

func (p *Proxy) set(message string, r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[message] = r
}

// judge notes a request and says what is to become of it.
func (p *Proxy) judge(message string, request []byte, refusable bool) (fate, int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, message)
	r := p.rules[message]
	if r == nil || r.times == 0 || r.fate == refused && !refusable || !bytes.Contains(request, r.content) {
		return passed, 0
	}
	if r.pass > 0 {
		r.pass--
		return passed, 0
	}
	if r.times > 0 {
		r.times--
	}
	r.hits++
	if r.fate == fatal {
		r.met()
	}
	return r.fate, r.retval
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(client, true)
	defer p.track(client, false)
	s := newSession(p, client, server)
	p.running.Go(func() {
		defer client.Close()
		p.note(s.replies())
	})
	p.note(s.requests())
}

func (p *Proxy) note(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

func (p *Proxy) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.conns[c] = true
		return
	}
	delete(p.conns, c)
}
