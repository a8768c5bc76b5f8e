package refuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// session is one client's connection. A refused request goes on as a control_ping of the same context, whose reply is
// then replaced: so replies stay in the order of requests.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu      sync.Mutex
	names   map[uint16]string // id -> message
	ids     map[string]uint16
	refused map[uint32]refusal // by context
	lost    map[uint32]bool
}

type refusal struct {
	reply  uint16
	retval int32
}

// What VPP's socket protocol fixes: the header's length, three message ids, and the layout of a request and of the
// message table.
const (
	headerLength   = 16
	idCreateReply  = 16
	idPing         = 23
	idPingReply    = 24
	requestLength  = 10 // id, client index, context
	tableOffset    = 20
	tableEntrySize = 66
)

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{
		proxy: p, client: client, server: server,
		names: map[uint16]string{}, ids: map[string]uint16{}, refused: map[uint32]refusal{}, lost: map[uint32]bool{},
	}
}

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
	reply, refusable := s.ids[name+"_reply"]
	fate, retval := s.proxy.judge(name, b, refusable)
	context := binary.BigEndian.Uint32(b[6:])
	switch fate {
	case hung, fatal:
		return nil
	case lost:
		s.lost[context] = true
	case refused:
		s.refused[context] = refusal{reply, retval}
		return append(binary.BigEndian.AppendUint16(nil, idPing), b[2:requestLength]...)
	}
	return b
}

func (s *session) replies() error {
	for {
		b, err := read(s.server)
		if err != nil {
			return quiet(err)
		}
		if b = s.answer(b); b == nil {
			continue
		}
		if err := write(s.client, b); err != nil {
			return quiet(err)
		}
	}
}

// answer replaces the reply to a ping that stands for a refused request; nil is for one that is lost.
func (s *session) answer(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := binary.BigEndian.Uint16(b)
	if id == idCreateReply {
		s.learn(b)
	}
	if len(b) < 6 {
		return b
	}
	context := binary.BigEndian.Uint32(b[2:])
	if s.lost[context] && strings.HasSuffix(s.names[id], "_reply") {
		delete(s.lost, context)
		return nil
	}
	r, ok := s.refused[context]
	if id != idPingReply || !ok {
		return b
	}
	delete(s.refused, context)
	reply := binary.BigEndian.AppendUint16(nil, r.reply)
	reply = append(reply, b[2:6]...)
	// Most replies begin with the retval, those of the ACL plugin with an index: so it stands twice.
	reply = binary.BigEndian.AppendUint32(reply, uint32(r.retval))
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
	if errors.As(err, new(*net.OpError)) {
		return nil
	}
	return err
}
