package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

const (
	clientName = "weft-agent"
	// createID is the number of sockclnt_create, the only number that is known before the handshake.
	createID = 15
	// requestHeader is the size of a request's header: message id, client index, context.
	requestHeader = 10
	// writeLimit bounds a write to a dataplane that does not read.
	writeLimit = 5 * time.Second
)

// session is one connection to the dataplane, from its handshake to its end.
type session struct {
	conn  net.Conn
	read  *bufio.Reader
	index uint32 // client index, in each request
	ids   messageIDs
	facts facts         // defects of the dataplane
	ended chan struct{} // closed when the reader has returned

	writing sync.Mutex // held while frames are written
	pending *pending
}

// dial connects to the socket and shakes hands. Afterwards the session reads until close.
func dial(ctx context.Context, socket string) (*session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to dataplane: %w", err)
	}
	s := &session{
		conn:    conn,
		read:    bufio.NewReaderSize(conn, 64<<10),
		ended:   make(chan struct{}),
		pending: newPending(),
	}
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

// shakeHands reads the table of messages. The request has the header of a reply, and the reply has the header of a
// request.
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
	s.ids = make(messageIDs, len(reply.MessageTable))
	for _, m := range reply.MessageTable {
		s.ids[m.Name] = m.Index
	}
	return nil
}

func (s *session) close() {
	s.end(errClosed)
	<-s.ended
}

// end closes the session and fails all pending requests. The first call sets the reason.
func (s *session) end(err error) {
	if s.pending.end(err) {
		_ = s.conn.Close()
	}
}

// lost returns the reason of the session's end; nil before.
func (s *session) lost() error { return s.pending.ended() }

// receive passes answers to their requests until the session ends.
func (s *session) receive() {
	defer close(s.ended)
	for {
		data, err := readFrame(s.read)
		if err != nil {
			s.end(fmt.Errorf("read from dataplane: %w", err))
			return
		}
		s.pending.receive(data)
	}
}

// write sends frames. An error ends the session, because a partial frame garbles the next ones.
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
	// frameHeader is the size of VPP's msgbuf_t, which contains the length of the message.
	frameHeader = 16
	// minMessage is the size of a message id and a context.
	minMessage = 6
	// maxMessage bounds the memory for a garbled length. ACLs have the longest messages, 48 bytes a rule.
	maxMessage = 4 << 20
)

var errFrame = errors.New("message length out of range")

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

func appendFrame(to, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(to, header[:]...), data...)
}

// window limits the pending requests of an exchange. VPP is not faster with more.
const window = 64

var (
	errNoAnswer = errors.New("no answer from the dataplane")
	errUnsent   = errors.New("not sent")
)

// exchange sends the requests in order, pipelined, and returns when each has an answer or an error (see fault); limit
// bounds the wait for each answer.
//
// After the end of ctx exchange sends no request and abandons reads. It awaits sent changes for the rest of the limit:
// a rollback depends on their outcome, and VPP may need longer to create an interface than a caller waits.
func (s *session) exchange(ctx context.Context, limit time.Duration, requests []*request) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	sent := 0
	ended := false
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
				ended = true // without a reset of the timer
			case silent:
				s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s", errNoAnswer, limit))
				return
			}
		}
		if !r.changes() {
			s.pending.abandon([]*request{r}, ctx.Err())
		}
		if s.await(nil, r, timer, limit) == silent {
			s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s of %w", errNoAnswer, limit, ctx.Err()))
			return
		}
	}
}

type awaited uint8

const (
	answered awaited = iota
	stopped
	silent
)

// await waits for the answer to a request until the timer fires, and for the limit again while the dataplane answers
// earlier requests: it handles one after the other, and a hundred interfaces may take longer than the limit.
func (s *session) await(stop <-chan struct{}, r *request, timer *time.Timer, limit time.Duration) awaited {
	for {
		select {
		case <-r.done:
			return answered
		case <-stop:
			return stopped
		case <-timer.C:
		}
		if !s.pending.isAtEarlier(r, limit) {
			return silent
		}
		timer.Reset(limit)
	}
}

// send fills the window that starts at requests[oldest], and returns the index of the first unsent request.
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

// enlist gives the request a context in the session and appends its frames.
func (s *session) enlist(r *request, frames []byte) ([]byte, error) {
	r.done = make(chan struct{})
	frames, err := s.enlistOne(r, frames)
	if err != nil || !r.dump {
		return frames, err
	}
	ping := newPing()
	ping.done = make(chan struct{})
	ping.pingOf = r
	return s.enlistOne(ping, frames)
}

func (s *session) enlistOne(r *request, frames []byte) ([]byte, error) {
	id, err := s.ids.of(r.msg)
	if err != nil {
		return frames, err
	}
	if r.replyID, err = s.ids.of(r.reply); err != nil {
		return frames, err
	}
	data, err := codec.EncodeMsg(s.facts.spare(r.msg), id)
	if err != nil {
		return frames, fmt.Errorf("encode %s: %w", r.msg.GetMessageName(), err)
	}
	if err := s.pending.add(r); err != nil {
		return frames, err
	}
	binary.BigEndian.PutUint32(data[2:], s.index)
	binary.BigEndian.PutUint32(data[6:], r.context)
	return appendFrame(frames, data), nil
}

// giveUp fails requests without an answer. The first n were sent.
func (s *session) giveUp(requests []*request, n int, err error) {
	s.pending.abandon(requests[:n], err)
	for _, r := range requests[n:] {
		r.done = make(chan struct{})
		r.finish(fmt.Errorf("%w: %w", errUnsent, err))
	}
}

// watchInterfaces subscribes to events, and calls disturbed for interfaces that were deleted or set down.
func (s *session) watchInterfaces(ctx context.Context, limit time.Duration, disturbed func(Index)) error {
	id, err := s.ids.of(&interfaces.SwInterfaceEvent{})
	if err != nil {
		return err
	}
	s.pending.subscribe(id, func(data []byte) {
		var e interfaces.SwInterfaceEvent
		if codec.DecodeMsg(data, &e) == nil && (e.Deleted || e.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0) {
			disturbed(Index(e.SwIfIndex))
		}
	})
	r := ask("want_interface_events", &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: uint32(os.Getpid())},
		&interfaces.WantInterfaceEventsReply{})
	s.exchange(ctx, limit, []*request{r})
	return r.fault()
}
