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
	"syscall"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
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
