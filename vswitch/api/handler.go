package api

import (
	"encoding/binary"
	"errors"
	"reflect"

	"go.fd.io/govpp/api"

	"github.com/weftnet/weft/vswitch/model"
)

// handler answers one kind of request. The functions handle, call, set and dump make handlers.
type handler struct {
	newRequest func() api.Message
	reply      api.Message // or details
	answer     answerFunc
	list       list
}

// answerFunc handles one request and passes its replies to send. After an error the server closes the connection.
type answerFunc func(c *client, req api.Message, send func(api.Message) error) error

// message is the type *T of a message.
type message[T any] interface {
	*T
	api.Message
}

// newMessage returns an empty message.
func newMessage[T any, P message[T]]() api.Message { return P(new(T)) }

// handle makes a handler for a request with one reply. An error of f becomes the retval of the reply.
// A nil reply means an empty one.
func handle[Req, Reply any, PReq message[Req], PReply message[Reply]](
	f func(c *client, r *Req) (*Reply, error),
) handler {
	answer := func(c *client, req api.Message, send func(api.Message) error) error {
		reply, err := f(c, (*Req)(req.(PReq)))
		if reply == nil {
			reply = new(Reply)
		}
		if err != nil {
			setRetval(reply, c.server.retval(req, err))
		}
		return send(PReply(reply))
	}
	return handler{newRequest: newMessage[Req, PReq], reply: newMessage[Reply, PReply](), answer: answer}
}

// call makes a handler for a request to the model.
func call[Req, Reply any, PReq message[Req], PReply message[Reply]](
	f func(m *model.Model, r *Req) (*Reply, error),
) handler {
	return handle[Req, Reply, PReq, PReply](func(c *client, r *Req) (*Reply, error) { return f(c.server.model, r) })
}

// set makes a handler for a request to the model whose reply has only a retval.
func set[Reply, Req any, PReq message[Req], PReply message[Reply]](f func(m *model.Model, r *Req) error) handler {
	return handle[Req, Reply, PReq, PReply](func(c *client, r *Req) (*Reply, error) {
		return nil, f(c.server.model, r)
	})
}

// dump makes a handler that sends the details of each item of items. Clients detect the end of a dump by a control_ping
// that they send after it; a dump has no retval, so an error only shortens it.
func dump[Req, Item, Details any, PReq message[Req], PDetails message[Details]](
	items func(m *model.Model, r *Req) ([]Item, error), details func(r *Req, item Item) Details,
) handler {
	answer := func(c *client, req api.Message, send func(api.Message) error) error {
		r := (*Req)(req.(PReq))
		list, err := items(c.server.model, r)
		if err != nil {
			c.server.log.Debug("dump rejected", "message", req.GetMessageName(), "err", err)
		}
		for _, item := range list {
			d := details(r, item)
			if err := send(PDetails(&d)); err != nil {
				return err
			}
		}
		return nil
	}
	return handler{newRequest: newMessage[Req, PReq], reply: newMessage[Details, PDetails](), answer: answer}
}

// retval returns the retval of err. An error that is not a Retval is a bug or a failure of the machine: retval logs it.
func (s *Server) retval(req api.Message, err error) model.Retval {
	var retval model.Retval
	if !errors.As(err, &retval) {
		s.log.Error("request failed", "message", req.GetMessageName(), "err", err)
		return model.Unspecified
	}
	s.log.Debug("request rejected", "message", req.GetMessageName(), "err", err)
	return retval
}

// setRetval sets the retval of a reply. Some replies of memclnt have no retval.
func setRetval(reply any, retval model.Retval) {
	if f := reflect.ValueOf(reply).Elem().FieldByName("Retval"); f.IsValid() {
		f.SetInt(int64(retval))
	}
}

// list locates the variable-length list of a request. The codec allocates as many items as the 32-bit count says before
// it checks the length of the message: without a check, 100 bytes could allocate 100 GiB.
type list struct {
	count int // offset of the count after the request header
	item  int // length of an item
}

// withList returns h for a request with a list.
func (h handler) withList(count, item int) handler {
	h.list = list{count: count, item: item}
	return h
}

// fits reports whether data contains all items of the list.
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

// choose returns yes or no.
func choose[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

// convert returns the results of f for the items of in.
func convert[T, U any](in []T, f func(T) U) []U {
	out := make([]U, len(in))
	for i, item := range in {
		out[i] = f(item)
	}
	return out
}
