// Package refuse is a proxy for a dataplane's binary API that refuses, drops or loses chosen requests, as a dataplane
// may.
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

// Proxy forwards a binary API, except the requests that match a rule.
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

// rule is the treatment of the requests of one message.
type rule struct {
	fate   fate
	retval int32
	pass   int // number of requests to forward before
	times  int // -1 = unlimited
	hits   int

	content []byte // only requests with this content match
	met     func() // called before a fatal request is dropped
}

// fate is the treatment of a request.
type fate int

const (
	passed  fate = iota
	refused      // answered with a retval, not forwarded
	hung         // dropped: neither forwarded nor answered
	lost         // forwarded, but the reply is dropped
	fatal        // dropped after the dataplane was killed
)

// Listen serves on path and forwards to the dataplane at target.
func Listen(path, target string) (*Proxy, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the dataplane's clients: %w", err)
	}
	p := &Proxy{target: target, listener: l, rules: map[string]*rule{}, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Refuse answers the next requests of a message (its name without CRC) with retval; times is their number, -1 =
// unlimited. It has no effect on dumps, which have no reply of their own.
func (p *Proxy) Refuse(message string, retval int32, times int) {
	p.set(message, &rule{fate: refused, retval: retval, times: times})
}

// RefuseNth refuses one request of a message: the nth from now on, counted from 1.
func (p *Proxy) RefuseNth(message string, retval int32, n int) {
	p.set(message, &rule{fate: refused, retval: retval, times: 1, pass: n - 1})
}

// Hang drops the next requests of a message: they are neither executed nor answered.
func (p *Proxy) Hang(message string, times int) { p.set(message, &rule{fate: hung, times: times}) }

// Lose forwards the next requests of a message and drops their replies.
func (p *Proxy) Lose(message string, times int) { p.set(message, &rule{fate: lost, times: times}) }

// Kill drops each request of a message with the content, and calls kill before, for a dataplane that dies of such a
// request.
func (p *Proxy) Kill(message, content string, kill func()) {
	p.set(message, &rule{fate: fatal, times: -1, content: []byte(content), met: kill})
}

// Allow removes the rules of Refuse, Hang, Lose or Kill for a message, and returns the number of matched requests.
func (p *Proxy) Allow(message string) (hits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rules[message]; r != nil {
		hits = r.hits
	}
	delete(p.rules, message)
	return hits
}

// Met waits until a rule has matched a request of a message.
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

// Asked returns the requested messages since its last call, in order.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// Cut drops all connections, as a dataplane that dies does; the proxy serves new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy, waits for its connections, and returns their protocol errors.
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

// fateOf records a request and returns its treatment.
func (p *Proxy) fateOf(message string, request []byte, refusable bool) (fate, int32) {
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
