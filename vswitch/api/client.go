package api

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/vswitch/model"
)

var (
	errNotRegistered = errors.New("request before sockclnt_create")
	errClientIndex   = errors.New("request with another client's index")
	errUnknownID     = errors.New("message id that was never advertised")
	errShortRequest  = errors.New("request shorter than its header or its list")
	errPanic         = errors.New("a handler panicked")
	errGoodbye       = errors.New("client said goodbye")
)

// requestHeader is what precedes a request's fields: message id, client index, context.
const requestHeader = 10

// client is one connection. Its requests are answered in order by the goroutine of serve.
type client struct {
	server *Server
	conn   net.Conn
	out    *outbox
	index  uint32
	name   string
}

// serve answers the client until it goes away, errs, or the connection is closed under it.
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
		// Replies to requests that came together leave together.
		if r.Buffered() == 0 {
			c.out.flush()
		}
	}
}

// answer answers one message.
func (c *client) answer(data []byte) error {
	// The codec slices up to the capacity: what was left there by an earlier message is not this one's.
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
	msg := reflect.New(req.message).Interface().(api.Message)
	if err := codec.DecodeMsg(data, msg); err != nil {
		return fmt.Errorf("decode %s: %w", msg.GetMessageName(), err)
	}
	context := binary.BigEndian.Uint32(data[6:])
	return c.guard(msg, func() error {
		return req.answer(c, msg, func(m api.Message) error { return c.send(m, context) })
	})
}

// register answers sockclnt_create. That message has a reply's header and its reply a request's:
// its own context stands where other requests have the client index.
func (c *client) register(data []byte) error {
	var req memclnt.SockclntCreate
	if err := codec.DecodeMsg(data, &req); err != nil {
		return fmt.Errorf("decode sockclnt_create: %w", err)
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear handshake deadline: %w", err)
	}
	c.name = strings.ToValidUTF8(req.Name, "?")
	if c.name == "" {
		c.name = "(unnamed)"
	}
	c.server.log.Debug("client registered", "client", c.name, "index", c.index)
	entries := c.server.table.entries()
	reply := &memclnt.SockclntCreateReply{Index: c.index, Count: uint16(len(entries)), MessageTable: entries}
	return c.send(reply, binary.BigEndian.Uint32(data[2:]))
}

// guard runs f and turns a panic into an error, so that one request that we cannot stand costs one connection.
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

// send queues m for the client; it waits while the client is slow to read.
func (c *client) send(m api.Message, context uint32) error {
	data, err := c.encode(m, context)
	if err != nil {
		return err
	}
	return c.out.put(data)
}

// encode makes m's bytes. The codec writes what follows the header, the header is ours.
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

// wentAway says whether err is only the other side's going.
func wentAway(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errGoodbye) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// maxQueued bounds what waits for one client. A dump's writer then waits with it; events,
// whose writer waits for nobody, cost the client its connection.
const maxQueued = 1 << 20

var errSlowReader = errors.New("client reads too slowly")

// outbox carries messages to one connection in order, with a goroutine of its own,
// so that neither the model nor another client ever waits for this one.
//
//	put --> queued --flush, or much of it--> run writes --> connection
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for one write

	mu      sync.Mutex
	changed *sync.Cond
	queued  []byte
	due     bool  // queued is to be written
	err     error // set once: nothing more is taken
}

func newOutbox(conn net.Conn, timeout time.Duration) *outbox {
	o := &outbox{conn: conn, timeout: timeout}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// put queues one message, and waits while too much is queued already.
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

// post queues one message and sends it soon; it never waits.
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

// flush sends what is queued.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = true
	o.changed.Broadcast()
}

// close ends run once what is due has been written.
func (o *outbox) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.changed.Broadcast()
}

// run writes until the outbox is closed or a write fails; its error, never nil, says which.
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

// take waits for something due and takes all that is queued, leaving spare in its place.
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
	o.queued, o.due = spare, false
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

// subscriptions are the clients that asked for interface events, with the pid that each gave.
type subscriptions struct {
	mu   sync.Mutex
	pids map[*client]uint32
}

// set subscribes or unsubscribes c. What is so already is an error, as in VPP.
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

// InterfaceChanged tells the clients that want to know. It never waits for one of them.
func (s *Server) InterfaceChanged(e model.InterfaceEvent) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for c, pid := range s.events.pids {
		msg := &interfaces.SwInterfaceEvent{PID: pid, SwIfIndex: interface_types.InterfaceIndex(e.Index),
			Flags: statusFlags(e.AdminUp, e.LinkUp), Deleted: e.Deleted}
		data, err := c.encode(msg, 0)
		if err == nil {
			err = c.out.post(data)
		}
		if err != nil {
			s.log.Debug("event not sent", "client", c.name, "err", err)
		}
	}
}

func statusFlags(adminUp, linkUp bool) interface_types.IfStatusFlags {
	var flags interface_types.IfStatusFlags
	if adminUp {
		flags |= interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	if linkUp {
		flags |= interface_types.IF_STATUS_API_FLAG_LINK_UP
	}
	return flags
}

// message is a pointer to T that is a message.
type message[T any] interface {
	*T
	api.Message
}

// handle registers f as the answer to Req by one Reply. An error of f goes into the reply's retval;
// a nil reply with or without error is an otherwise empty one.
func handle[Req, Reply any, PReq message[Req], PReply message[Reply]](s *Server, f func(c *client, req *Req) (*Reply, error)) {
	s.table.add(PReply(new(Reply)))
	s.table.addRequest(PReq(new(Req)), func(c *client, req api.Message, send func(api.Message) error) error {
		reply, err := f(c, (*Req)(req.(PReq)))
		if reply == nil {
			reply = new(Reply)
		}
		if err != nil {
			setRetval(reply, s.retval(req, err))
		}
		return send(PReply(reply))
	})
}

// handleDump registers f as the answer to Req by any number of Details. The client ends
// the dump itself by the control_ping that follows, so nothing marks its end, and an error is no more than a shorter dump.
func handleDump[Req, Details any, PReq message[Req], PDetails message[Details]](s *Server, f func(req *Req) ([]Details, error)) {
	s.table.add(PDetails(new(Details)))
	s.table.addRequest(PReq(new(Req)), func(_ *client, req api.Message, send func(api.Message) error) error {
		list, err := f((*Req)(req.(PReq)))
		if err != nil {
			s.log.Debug("dump refused", "message", req.GetMessageName(), "err", err)
		}
		for i := range list {
			if err := send(PDetails(&list[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

// retval is the number for err; what is not one of VPP's errors is our own fault and logged.
func (s *Server) retval(req api.Message, err error) model.Retval {
	var retval model.Retval
	if !errors.As(err, &retval) {
		s.log.Error("request failed", "message", req.GetMessageName(), "err", err)
		return model.Unspecified
	}
	s.log.Debug("request refused", "message", req.GetMessageName(), "err", err)
	return retval
}

// setRetval sets the field that all replies but a few of memclnt's have.
func setRetval(reply any, retval model.Retval) {
	if f := reflect.ValueOf(reply).Elem().FieldByName("Retval"); f.IsValid() {
		f.SetInt(int64(retval))
	}
}

// A message on the stream is a 16 byte header (VPP's msgbuf_t: a queue pointer, the length of the data
// in network order, a garbage collector's mark; only the length means something here) and the data.
const (
	frameHeader = 16
	// minMessage is the shortest message there is: message id and context.
	minMessage = 6
	// maxMessage bounds what one peer can make us hold; the longest message of use,
	// a route of 255 paths, has 38 KiB.
	maxMessage = 256 << 10
)

var errFrameLength = errors.New("message length out of range")

// readFrame reads one message into buf, which grows as needed, and returns the message's bytes.
// They are valid until the next call. At the end of the stream between two messages the error is io.EOF.
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
		return buf, fmt.Errorf("read message of %d bytes: %w", n, noEOF(err))
	}
	return buf, nil
}

// noEOF says that the end of the stream came where it is a fault.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends data with its header to b.
func appendFrame(b, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(b, header[:]...), data...)
}

// list is the part of a message that its sender says the length of. The codec makes room for as many items as a 32-bit
// count says before it looks whether they are there: a message of a hundred bytes could ask for 100 GiB.
type list struct {
	count int // where in the message the count is, behind the header of a request
	item  int // the length of an item
}

// addList says where the list of a request is that was added before.
func (t *table) addList(m api.Message, l list) {
	r := t.requests[t.id(m)]
	r.list = l
	t.requests[t.id(m)] = r
}

// fits says that a request's items are all there.
func (l list) fits(data []byte) bool {
	if l.item == 0 {
		return true
	}
	at := requestHeader + l.count
	if len(data) < at+4 {
		return false
	}
	return uint64(binary.BigEndian.Uint32(data[at:]))*uint64(l.item) <= uint64(len(data)-at-4)
}
