package api

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/vswitch/model"
)

var (
	errNotRegistered = errors.New("request before sockclnt_create")
	errClientIndex   = errors.New("request with the client index of another connection")
	errUnknownID     = errors.New("message id is not in the message table")
	errShortRequest  = errors.New("request is shorter than its header or its list")
	errPanic         = errors.New("handler panicked")
	errDisconnect    = errors.New("client sent sockclnt_delete")
)

// requestHeader is the length of a request's header: message id, client index, context.
const requestHeader = 10

// client is one connection. The goroutine of serve answers its requests in order.
type client struct {
	server *Server
	conn   net.Conn
	out    *outbox
	index  uint32
	name   string
}

// serve answers requests until the client disconnects, the connection is closed, or an error occurs.
func (c *client) serve() error {
	r := bufio.NewReaderSize(c.conn, 64<<10)
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.limits.Handshake)); err != nil {
		return fmt.Errorf("set handshake deadline: %w", err)
	}
	buf := make([]byte, 4096)
	for {
		var err error
		if buf, err = readFrame(r, buf); err != nil {
			return err
		}
		if err = c.answer(buf); err != nil {
			return err
		}
		// Replies to requests that arrived together are sent together.
		if r.Buffered() == 0 {
			c.out.flush()
		}
	}
}

// answer handles one message.
func (c *client) answer(data []byte) error {
	// The codec slices up to the capacity, which can hold bytes of an earlier message.
	data = slices.Clip(data)
	id := binary.BigEndian.Uint16(data)
	if id == fixedIDs["sockclnt_create"] {
		return c.register(data)
	}
	if c.name == "" {
		return errNotRegistered
	}
	req, ok := c.server.table.requests[id]
	switch {
	case !ok:
		return fmt.Errorf("%w: %d", errUnknownID, id)
	case len(data) < requestHeader || !req.list.fits(data):
		return errShortRequest
	case binary.BigEndian.Uint32(data[2:]) != c.index:
		return errClientIndex
	}
	msg := req.newRequest()
	if err := codec.DecodeMsg(data, msg); err != nil {
		return fmt.Errorf("decode %s: %w", msg.GetMessageName(), err)
	}
	context := binary.BigEndian.Uint32(data[6:])
	return c.guard(msg, func() error {
		return req.answer(c, msg, func(m api.Message) error { return c.send(m, context) })
	})
}

// register handles sockclnt_create. This message has the header of a reply, with its context in place of the client
// index, and its reply has the header of a request.
func (c *client) register(data []byte) error {
	var req memclnt.SockclntCreate
	if err := codec.DecodeMsg(data, &req); err != nil {
		return fmt.Errorf("decode sockclnt_create: %w", err)
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear handshake deadline: %w", err)
	}
	c.name = cmp.Or(strings.ToValidUTF8(req.Name, "?"), "(unnamed)")
	c.server.log.Debug("client registered", "client", c.name, "index", c.index)
	entries := c.server.table.entries()
	reply := &memclnt.SockclntCreateReply{Index: c.index, Count: uint16(len(entries)), MessageTable: entries}
	return c.send(reply, binary.BigEndian.Uint32(data[2:]))
}

// guard runs f and converts a panic into an error, so that a panic of a handler closes one connection only.
func (c *client) guard(req api.Message, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("handler panicked", "message", req.GetMessageName(), "client", c.name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// send queues m for the client. It blocks while the client's queue is full.
func (c *client) send(m api.Message, context uint32) error {
	data, err := c.encode(m, context)
	if err != nil {
		return err
	}
	return c.out.put(data)
}

// encode encodes m. The codec writes the fields, encode the header.
func (c *client) encode(m api.Message, context uint32) ([]byte, error) {
	data, err := codec.EncodeMsg(m, c.server.table.id(m))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.GetMessageName(), err)
	}
	switch m.GetMessageType() {
	case api.ReplyMessage:
		binary.BigEndian.PutUint32(data[2:], context)
	case api.RequestMessage:
		binary.BigEndian.PutUint32(data[2:], c.index)
		binary.BigEndian.PutUint32(data[6:], context)
	case api.EventMessage:
		binary.BigEndian.PutUint32(data[2:], c.index)
	}
	return data, nil
}

// isDisconnect reports whether err means that the client has closed the connection.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errDisconnect) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// maxQueued bounds the bytes queued for one client. At the limit a handler blocks, and an event, which must not block,
// closes the client's connection.
const maxQueued = 1 << 20

var errSlowReader = errors.New("client reads too slowly")

// outbox sends messages to one connection in order. It has its own goroutine, so that a slow client blocks neither the
// model nor other clients.
//
//	put --> queued --flush, or queue full--> run writes --> connection
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for one write

	mu      sync.Mutex
	changed *sync.Cond
	queued  []byte
	due     bool  // run shall write queued
	err     error // set once; then the outbox accepts no more messages
}

func newOutbox(conn net.Conn, timeout time.Duration) *outbox {
	o := &outbox{conn: conn, timeout: timeout}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// put queues one message. It blocks while the queue is full.
func (o *outbox) put(data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.queued) > maxQueued {
		o.due = true
		o.changed.Broadcast()
		o.changed.Wait()
	}
	if o.err != nil {
		return o.err
	}
	o.queued = appendFrame(o.queued, data)
	return nil
}

// post queues one message and flushes. It never blocks.
func (o *outbox) post(data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && len(o.queued) > maxQueued {
		o.err = errSlowReader
	}
	if o.err == nil {
		o.queued = appendFrame(o.queued, data)
		o.due = true
	}
	o.changed.Broadcast()
	return o.err
}

// flush makes run write the queue.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = true
	o.changed.Broadcast()
}

// close ends run after it has written what is due.
func (o *outbox) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.changed.Broadcast()
}

// run writes until the outbox is closed or a write fails. It returns the reason, never nil.
func (o *outbox) run() error {
	var spare []byte
	for {
		batch, err := o.take(spare)
		if len(batch) > 0 {
			if werr := o.write(batch); werr != nil {
				o.close(werr)
				return werr
			}
		}
		if err != nil {
			return err
		}
		spare = batch[:0]
	}
}

// take waits until the queue is due and replaces it by spare.
func (o *outbox) take(spare []byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (!o.due || len(o.queued) == 0) {
		o.changed.Wait()
	}
	batch := o.queued
	if !o.due {
		batch = nil
	}
	o.queued = spare
	o.due = false
	o.changed.Broadcast()
	return batch, o.err
}

func (o *outbox) write(batch []byte) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
		return err
	}
	_, err := o.conn.Write(batch)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return errSlowReader
	}
	return err
}

// subscriptions holds the clients that want interface events, with the PID of each subscription.
type subscriptions struct {
	mu   sync.Mutex
	pids map[*client]uint32
}

// set subscribes or unsubscribes c. As in VPP it fails if c is in that state already.
func (s *subscriptions) set(c *client, pid uint32, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, subscribed := s.pids[c]; subscribed == on {
		return model.InvalidRegistration
	}
	if on {
		s.pids[c] = pid
	} else {
		delete(s.pids, c)
	}
	return nil
}

func (s *subscriptions) remove(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, c)
}

// InterfaceChanged sends an event to the subscribed clients. It never blocks.
func (s *Server) InterfaceChanged(e model.InterfaceEvent) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for c, pid := range s.events.pids {
		msg := &interfaces.SwInterfaceEvent{PID: pid, SwIfIndex: swIfIndex(e.Index),
			Flags: statusFlags(e.AdminUp, e.LinkUp), Deleted: e.Deleted}
		data, err := c.encode(msg, 0)
		if err == nil {
			err = c.out.post(data)
		}
		if err != nil {
			s.log.Debug("event not sent", "index", c.index, "err", err) // the goroutine of serve can change the name
		}
	}
}

// A message on the stream is a 16 byte header and the data. The header is VPP's msgbuf_t: a queue pointer, the length
// of the data in network order, and a garbage collection mark. A socket uses only the length.
const (
	frameHeader = 16
	// minMessage is the length of the shortest message: message id and context.
	minMessage = 6
	// maxMessage bounds the memory for one message, as in the agent. ACLs have the longest ones, 48 bytes a rule.
	maxMessage = 4 << 20
)

var errFrameLength = errors.New("message length out of range")

// readFrame reads one message into buf, or a larger buffer, and returns it. The message is valid until the next call.
// The error is io.EOF if the stream ends between two messages.
func readFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return buf, err
	}
	n := binary.BigEndian.Uint32(header[8:])
	if n < minMessage || n > maxMessage {
		return buf, fmt.Errorf("%w: %d", errFrameLength, n)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, fmt.Errorf("read message of %d bytes: %w", n,
			choose(errors.Is(err, io.EOF), io.ErrUnexpectedEOF, err))
	}
	return buf, nil
}

// appendFrame appends the header and data to b.
func appendFrame(b, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(b, header[:]...), data...)
}
