package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/kvscheduler"
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

const (
	// frameHeader is VPP's msgbuf_t; of it only the length of the message means something.
	frameHeader = 16
	// minMessage is a message id and a context.
	minMessage = 6
	// maxMessage bounds what a garbled length can cost; VPP's longest message is its table of messages, 82 KB.
	maxMessage = 4 << 20
)

var errFrame = errors.New("message length out of range")

// readFrame reads one message.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[8:])
	if n < minMessage || n > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("message of %d bytes: %w", n, err)
	}
	return data, nil
}

// appendFrame adds a message with its header.
func appendFrame(to, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(to, header[:]...), data...)
}

// window is how many requests are on their way at once: VPP gains nothing from more.
const window = 64

var (
	errNoAnswer = errors.New("no answer from the dataplane")
	errUnsent   = errors.New("not sent")
)

// exchange sends the requests in order, pipelined, and returns when each is answered or has failed; limit bounds the
// wait for any one of them. What an error says of a request's outcome is in its type (see fault).
//
// When ctx ends, no further request is sent and reads are abandoned. Changes that were sent are awaited for the rest of the
// limit: their outcome decides what a rollback must remove, and VPP may create an interface for longer than a caller waits.
func (s *session) exchange(ctx context.Context, limit time.Duration, requests []*request) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	sent, ended := 0, false
	for i, r := range requests {
		if !ended && sent-i <= window/2 {
			sent = s.send(requests, i, sent)
		}
		if i == sent {
			s.giveUp(requests[i:], 0, ctx.Err())
			return
		}
		if !ended {
			timer.Reset(limit)
			switch s.await(ctx.Done(), r, timer, limit) {
			case answered:
				continue
			case stopped:
				ended = true // the timer goes on
			case silent:
				s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s", errNoAnswer, limit))
				return
			}
		}
		if !r.changes() {
			s.abandon([]*request{r}, ctx.Err())
		}
		if s.await(nil, r, timer, limit) == silent {
			s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s of %w", errNoAnswer, limit, ctx.Err()))
			return
		}
	}
}

// awaited is how the wait for an answer ended.
type awaited uint8

const (
	answered awaited = iota
	stopped
	silent
)

// await waits for a request's answer until the timer fires, and for the limit again as long as the dataplane answers what it was
// asked before: it takes one after the other, and a hundred interfaces may take longer than the limit.
func (s *session) await(stop <-chan struct{}, r *request, timer *time.Timer, limit time.Duration) awaited {
	for {
		select {
		case <-r.done:
			return answered
		case <-stop:
			return stopped
		case <-timer.C:
		}
		if !s.isAtEarlier(r, limit) {
			return silent
		}
		timer.Reset(limit)
	}
}

// isAtEarlier reports whether the dataplane has said something within the limit and has older requests than r to answer.
func (s *session) isAtEarlier(r *request, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.heard) >= limit {
		return false
	}
	for context := range s.waiting {
		if int32(context-r.context) < 0 {
			return true
		}
	}
	return false
}

// send fills the window, of which requests[oldest] is the first, and returns the index of the first request not sent.
func (s *session) send(requests []*request, oldest, next int) int {
	var frames []byte
	for next < len(requests) && next-oldest < window {
		var err error
		if frames, err = s.enlist(requests[next], frames); err != nil {
			requests[next].finish(err)
		}
		next++
	}
	if len(frames) > 0 {
		_ = s.write(frames) // ends the session, and so all requests
	}
	return next
}

// giveUp ends requests without an answer: the first n were sent, the others never will be.
func (s *session) giveUp(requests []*request, n int, err error) {
	s.abandon(requests[:n], err)
	for _, r := range requests[n:] {
		r.done = make(chan struct{})
		r.finish(fmt.Errorf("%w: %w", errUnsent, err))
	}
}

// fault is what a request's end means for the object that it was for: nil, or an error that says whether the dataplane
// may have done it.
func (r *request) fault() error {
	switch retval := r.retval(); {
	case r.err != nil && r.sent:
		return fmt.Errorf("%s: %w", r.what, r.err)
	case r.err != nil:
		missing := new(MissingMessage)
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, r.err), Outcome: kvscheduler.NotApplied,
			Permanent: errors.As(r.err, &missing),
		}
	case retval != 0 && !slices.Contains(r.fine, retval):
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, retval), Outcome: kvscheduler.NotApplied, Permanent: hopeless[retval],
		}
	}
	return nil
}

// refused tells whether the dataplane answered with one of the retvals.
func (r *request) refused(retvals ...api.VPPApiError) bool {
	return r.err == nil && slices.Contains(retvals, r.retval())
}

// hopeless are the refusals that the same value meets again whatever else changes.
var hopeless = map[api.VPPApiError]bool{
	api.INVALID_VALUE:                 true,
	api.INVALID_VALUE_2:               true,
	api.UNIMPLEMENTED:                 true,
	api.ADDRESS_LENGTH_MISMATCH:       true,
	api.INVALID_ARGUMENT:              true,
	api.INVALID_ADDRESS_FAMILY:        true,
	api.UNSUPPORTED:                   true,
	api.ILLEGAL_NAME:                  true,
	api.FIB_PATH_UNSUPPORTED_NH_PROTO: true,
	api.INVALID_PREFIX_LENGTH:         true,
}

// permanent is an error of ours, found before anything was sent.
func permanent(err error) error {
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: true}
}
