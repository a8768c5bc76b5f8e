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

// session is one client's connection. It forwards a refused request as a control_ping with the same context, and
// replaces that reply, so that replies stay in the order of requests.
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

// Constants of VPP's socket protocol: the header's length, three message ids, and the layout of a request and of the
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
		if b = s.substitute(b); b == nil {
			continue
		}
		if err := write(s.server, b); err != nil {
			return quiet(err)
		}
	}
}

// substitute returns the bytes to forward in place of a request; nil = none.
func (s *session) substitute(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.names[binary.BigEndian.Uint16(b)]
	if name == "" || len(b) < requestLength {
		return b
	}
	reply, refusable := s.ids[name+"_reply"]
	fate, retval := s.proxy.fateOf(name, b, refusable)
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

// answer returns the reply for a refused request in place of the ping's; nil = none, the reply is lost.
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
	// Most replies begin with the retval, those of the ACL plugin with an index: so the retval is written twice.
	reply = binary.BigEndian.AppendUint32(reply, uint32(r.retval))
	reply = binary.BigEndian.AppendUint32(reply, uint32(r.retval))
	return append(reply, make([]byte, 256)...) // the other fields are zero
}

// learn reads the message table of the handshake: names end with an underscore and the CRC.
func (s *session) learn(b []byte) {
	for off := tableOffset; off+tableEntrySize <= len(b); off += tableEntrySize {
		id := binary.BigEndian.Uint16(b[off:])
		name, _, _ := strings.Cut(string(b[off+2:off+tableEntrySize]), "\x00")
		if i := strings.LastIndexByte(name, '_'); i > 0 {
			s.names[id] = name[:i]
			s.ids[name[:i]] = id
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

// quiet returns nil for errors of a closed connection.
func quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if errors.As(err, new(*net.OpError)) {
		return nil
	}
	return err
}
