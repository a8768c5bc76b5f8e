package api

import (
	"errors"
	"reflect"

	"go.fd.io/govpp/api"

	"github.com/weftnet/weft/vswitch/model"
)

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
