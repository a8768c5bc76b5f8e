// Package refuse is a proxy before a dataplane's binary API that refuses or swallows chosen requests, as a dataplane may.
package refuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// Proxy passes a binary API through, but for what it was told to refuse. Everything else of the dataplane is real.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	rules map[string]*rule
	conns map[net.Conn]bool
}

// rule is what to do with the requests of one message.
type rule struct {
	retval int32
	times  int
	hang   bool
	hits   int
}

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
func (p *Proxy) Refuse(message string, retval int32, times int) {
	p.set(message, &rule{retval: retval, times: times})
}

// Hang swallows the next requests of a message: no answer ever comes.
func (p *Proxy) Hang(message string, times int) { p.set(message, &rule{hang: true, times: times}) }

// Allow ends what Refuse or Hang began, and tells how many requests it met.
func (p *Proxy) Allow(message string) (hits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rules[message]; r != nil {
		hits = r.hits
	}
	delete(p.rules, message)
	return hits
}

// Cut drops all connections, as a dataplane that dies does; new ones are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy and waits for its connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return err
}

func (p *Proxy) set(message string, r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[message] = r
}

// meet says what to do with one request of a message; nil lets it pass.
func (p *Proxy) meet(message string) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rules[message]
	if r == nil || r.times == 0 {
		return nil
	}
	if r.times > 0 {
		r.times--
	}
	r.hits++
	return r
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
	s := &session{proxy: p, client: client, server: server, names: map[uint16]string{}, ids: map[string]uint16{}, refused: map[uint32]refusal{}}
	p.running.Go(func() {
		defer client.Close()
		if err := s.replies(); err != nil {
			fmt.Fprintln(os.Stderr, "refuse:", err)
		}
	})
	if err := s.requests(); err != nil {
		fmt.Fprintln(os.Stderr, "refuse:", err)
	}
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

// session is one client's connection. A refused request goes on as a control_ping of the same context, whose reply is
// then replaced: so replies stay in the order of requests.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu      sync.Mutex
	names   map[uint16]string // id -> message
	ids     map[string]uint16
	refused map[uint32]refusal // by context
}

type refusal struct {
	reply  uint16
	retval int32
}

// What VPP's socket protocol fixes: the header's length and three message ids.
const (
	headerLength   = 16
	idCreateReply  = 16
	idPing         = 23
	idPingReply    = 24
	requestLength  = 10 // id, client index, context
	tableOffset    = 20
	tableEntrySize = 66
)

func (s *session) requests() error {
	for {
		b, err := read(s.client)
		if err != nil {
			return quiet(err)
		}
		if b = s.judge(b); b == nil {
			continue
		}
		if err := write(s.server, b); err != nil {
			return quiet(err)
		}
	}
}

// judge returns what to pass on in place of a request; nil is nothing.
func (s *session) judge(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.names[binary.BigEndian.Uint16(b)]
	if name == "" || len(b) < requestLength {
		return b
	}
	r := s.proxy.meet(name)
	switch {
	case r == nil:
		return b
	case r.hang:
		return nil
	}
	context := binary.BigEndian.Uint32(b[6:])
	s.refused[context] = refusal{reply: s.ids[name+"_reply"], retval: r.retval}
	ping := binary.BigEndian.AppendUint16(nil, idPing)
	return append(ping, b[2:requestLength]...)
}

func (s *session) replies() error {
	for {
		b, err := read(s.server)
		if err != nil {
			return quiet(err)
		}
		if err := write(s.client, s.answer(b)); err != nil {
			return quiet(err)
		}
	}
}

// answer replaces the reply to a ping that stands for a refused request.
func (s *session) answer(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := binary.BigEndian.Uint16(b)
	if id == idCreateReply {
		s.learn(b)
	}
	if id != idPingReply || len(b) < 6 {
		return b
	}
	r, ok := s.refused[binary.BigEndian.Uint32(b[2:])]
	if !ok {
		return b
	}
	delete(s.refused, binary.BigEndian.Uint32(b[2:]))
	reply := binary.BigEndian.AppendUint16(nil, r.reply)
	reply = append(reply, b[2:6]...)
	reply = binary.BigEndian.AppendUint32(reply, uint32(r.retval))
	return append(reply, make([]byte, 256)...) // whatever else the reply holds is zero
}

// learn reads the message table of the handshake: names end in an underscore and the CRC.
func (s *session) learn(b []byte) {
	for off := tableOffset; off+tableEntrySize <= len(b); off += tableEntrySize {
		id := binary.BigEndian.Uint16(b[off:])
		name, _, _ := strings.Cut(string(b[off+2:off+tableEntrySize]), "\x00")
		if i := strings.LastIndexByte(name, '_'); i > 0 {
			s.names[id], s.ids[name[:i]] = name[:i], id
		}
	}
}

func read(r io.Reader) ([]byte, error) {
	var h [headerLength]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[8:])
	if n < 2 || n > 1<<24 {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

func write(w io.Writer, b []byte) error {
	var h [headerLength]byte
	binary.BigEndian.PutUint32(h[8:], uint32(len(b)))
	_, err := w.Write(append(h[:], b...))
	return err
}

// quiet is nil for the ways in which a connection ends.
func quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return nil
	}
	return err
}
