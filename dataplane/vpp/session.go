package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

const (
	clientName = "weft-agent"
	// createID is the number of sockclnt_create, the only one that a client knows before it has the table.
	createID = 15
	// requestHeader is what stands before a request's fields: message id, client index, context.
	requestHeader = 10
	// writeLimit bounds how long a dataplane that does not read may hold a writer up.
	writeLimit = 5 * time.Second
)

// session is one connection to the dataplane, from its handshake to its end. It is not used again after that.
type session struct {
	conn  net.Conn
	read  *bufio.Reader
	index uint32            // ours, in each request
	ids   map[string]uint16 // the peer's numbers, by name_crc
	facts facts             // what the peer's version must be spared
	ended chan struct{}     // closed when the reader has returned

	writing sync.Mutex // a frame is written whole

	mu      sync.Mutex
	event   uint16 // the peer's number of an interface's event; 0: not asked for
	onEvent func([]byte)
	waiting map[uint32]*request // by context
	shifted map[uint16]bool     // numbers of answers that have the header of a request
	context uint32              // of the last request
	heard   time.Time           // when the last answer came
	err     error               // why the session is over; nil while it lives
}

// dial connects to the socket and shakes hands. Afterwards the session reads until close.
func dial(ctx context.Context, socket string) (*session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to dataplane: %w", err)
	}
	s := &session{conn: conn, read: bufio.NewReaderSize(conn, 64<<10), ended: make(chan struct{}), waiting: map[uint32]*request{}, shifted: map[uint16]bool{}}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = s.shakeHands()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("shake hands with dataplane at %s: %w", socket, err)
	}
	go s.receive()
	return s, nil
}

// shakeHands asks for the table of messages. The request has the header of a reply and the reply that of a request.
func (s *session) shakeHands() error {
	data, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: clientName}, createID)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(appendFrame(nil, data)); err != nil {
		return err
	}
	answer, err := readFrame(s.read)
	if err != nil {
		return err
	}
	if len(answer) < requestHeader {
		return fmt.Errorf("%w: %d bytes", errFrame, len(answer))
	}
	var reply memclnt.SockclntCreateReply
	if err := codec.DecodeMsg(answer, &reply); err != nil {
		return fmt.Errorf("read table of messages: %w", err)
	}
	if reply.Response != 0 {
		return fmt.Errorf("dataplane refuses clients: %w", api.VPPApiError(reply.Response))
	}
	s.index = reply.Index
	s.ids = make(map[string]uint16, len(reply.MessageTable))
	for _, m := range reply.MessageTable {
		s.ids[m.Name] = m.Index
	}
	return nil
}

// close ends the session and waits for its reader.
func (s *session) close() {
	s.end(errClosed)
	<-s.ended
}

// end makes err the reason of all that waits, the first time.
func (s *session) end(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	lost := s.waiting
	s.waiting = map[uint32]*request{}
	s.mu.Unlock()
	for _, r := range lost {
		r.finish(s.lost())
	}
	if first {
		_ = s.conn.Close()
	}
}

// lost is why the session ended.
func (s *session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// receive hands answers to those who wait for them.
func (s *session) receive() {
	defer close(s.ended)
	for {
		data, err := readFrame(s.read)
		if err != nil {
			s.end(fmt.Errorf("read from dataplane: %w", err))
			return
		}
		id, context := binary.BigEndian.Uint16(data), binary.BigEndian.Uint32(data[2:])
		s.mu.Lock()
		s.heard = time.Now()
		if s.event != 0 && id == s.event {
			s.mu.Unlock()
			s.onEvent(data)
			continue
		}
		if s.shifted[id] && len(data) >= requestHeader {
			context = binary.BigEndian.Uint32(data[6:])
		}
		r := s.waiting[context]
		if r != nil && r.last(id) {
			delete(s.waiting, context)
			if r.pingOf != nil {
				delete(s.waiting, r.pingOf.context)
			}
		}
		s.mu.Unlock()
		if r != nil {
			r.answer(id, data)
		}
	}
}

// id is the peer's number of m.
func (s *session) id(m api.Message) (uint16, error) {
	id, ok := s.ids[messageKey(m)]
	if !ok {
		return 0, newMissingMessage(m)
	}
	return id, nil
}

// write sends frames. A frame that was cut off would garble all that follow, so any error ends the session.
func (s *session) write(frames []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.lost(); err != nil {
		return err
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	if err == nil {
		_, err = s.conn.Write(frames)
	}
	if err != nil {
		s.end(fmt.Errorf("write to dataplane: %w", err))
	}
	return err
}
