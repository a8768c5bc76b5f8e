package vpp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"reflect"
	"sync"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/codec"
)

// request is a message on its way to the dataplane, with what comes back.
//
// A plain request has one answer, reply. A dump has any number of answers of the type of reply, gathered in details,
// and is followed by a ping, whose answer says that there are no more.
type request struct {
	what  string      // the operation and its object, for errors
	msg   api.Message // what is asked
	reply api.Message // where the answer goes; of a dump: its type
	dump  bool
	fine  []api.VPPApiError // refusals that mean: it is so already

	details []api.Message
	sent    bool
	err     error // of the exchange or, for a plain request, what the dataplane refused
	done    chan struct{}

	once    sync.Once
	context uint32
	replyID uint16
	pingOf  *request // this is the ping that ends that dump
}

// ask makes a plain request.
func ask(what string, msg, reply api.Message) *request {
	return &request{what: what, msg: msg, reply: reply}
}

// fineIf names refusals that mean that things are already as they should be.
func (r *request) fineIf(retvals ...api.VPPApiError) *request {
	r.fine = retvals
	return r
}

// askAll makes a dump.
func askAll(msg, details api.Message) *request {
	return &request{what: msg.GetMessageName(), msg: msg, reply: details, dump: true}
}

// reads are the plain requests that change nothing in the dataplane.
var reads = map[string]bool{
	(&memclnt.ControlPing{}).GetMessageName():                  true,
	(&interfaces.WantInterfaceEvents{}).GetMessageName():       true,
	(&vpe.ShowVersion{}).GetMessageName():                      true,
	(&vlib.ShowThreads{}).GetMessageName():                     true,
	(&interfaces.SwInterfaceGetTable{}).GetMessageName():       true,
	(&ip.SwInterfaceIP6GetLinkLocalAddress{}).GetMessageName(): true,
}

// changes reports whether the request may change the dataplane.
func (r *request) changes() bool { return !r.dump && !reads[r.msg.GetMessageName()] }

// listOf gives the details of a dump in their type.
func listOf[D api.Message](r *request) []D {
	list := make([]D, len(r.details))
	for i, d := range r.details {
		list[i] = d.(D)
	}
	return list
}

// enlist gives the request a context in the session and appends its frames.
func (s *session) enlist(r *request, frames []byte) ([]byte, error) {
	r.done = make(chan struct{})
	frames, err := s.enlistOne(r, frames)
	if err != nil || !r.dump {
		return frames, err
	}
	ping := &request{msg: &memclnt.ControlPing{}, reply: &memclnt.ControlPingReply{}, done: make(chan struct{}), pingOf: r}
	return s.enlistOne(ping, frames)
}

func (s *session) enlistOne(r *request, frames []byte) ([]byte, error) {
	id, err := s.id(r.msg)
	if err != nil {
		return frames, err
	}
	if r.replyID, err = s.id(r.reply); err != nil {
		return frames, err
	}
	msg, err := s.facts.spare(r.msg)
	if err != nil {
		return frames, err
	}
	data, err := codec.EncodeMsg(msg, id)
	if err != nil {
		return frames, fmt.Errorf("encode %s: %w", r.msg.GetMessageName(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return frames, s.err
	}
	s.context++
	if s.context == 0 { // means "no context" to VPP
		s.context++
	}
	s.waiting[s.context] = r
	if r.reply.GetMessageType() == api.RequestMessage { // VPP declares some details with a client index
		s.shifted[r.replyID] = true
	}
	r.context, r.sent = s.context, true
	binary.BigEndian.PutUint32(data[2:], s.index)
	binary.BigEndian.PutUint32(data[6:], s.context)
	return appendFrame(frames, data), nil
}

// abandon forgets requests whose answers nobody waits for any more.
func (s *session) abandon(requests []*request, err error) {
	s.mu.Lock()
	gone := make(map[*request]bool, len(requests))
	for _, r := range requests {
		gone[r] = true
	}
	for context, r := range s.waiting {
		if gone[r] || r.pingOf != nil && gone[r.pingOf] {
			delete(s.waiting, context)
		}
	}
	s.mu.Unlock()
	for _, r := range requests {
		r.finish(err)
	}
}

// last tells whether the message of that number is the one that the context was waiting for. A dump's context is done
// when its ping is: it waits for more.
func (r *request) last(id uint16) bool { return id == r.replyID && !r.dump }

// answer takes a message that came with the request's context. It runs on the session's reader alone.
func (r *request) answer(id uint16, data []byte) {
	if id != r.replyID {
		return // an event, whose layout has no context
	}
	switch {
	case r.pingOf != nil:
		r.pingOf.finish(nil)
	case r.dump:
		r.detail(data)
	default:
		r.finish(decode(data, r.reply))
	}
}

func (r *request) detail(data []byte) {
	m := reflect.New(reflect.TypeOf(r.reply).Elem()).Interface().(api.Message)
	if err := decode(data, m); err != nil {
		r.finish(err)
		return
	}
	select {
	case <-r.done: // abandoned: its owner reads details
	default:
		r.details = append(r.details, m)
	}
}

// lists are the messages with a list whose length has 32 bits: where that length stands, and how long an item is.
var lists = map[string]struct{ count, item int }{
	"bridge_domain_details": {89, 9},
	"acl_details":           {74, 48},
	"macip_acl_details":     {74, 31},
	"show_threads_reply":    {10, 148},
}

var errList = errors.New("a list is longer than its message")

func decode(data []byte, m api.Message) error {
	// The codec makes room for a list before it looks whether it is there.
	if l, ok := lists[m.GetMessageName()]; ok && len(data) >= l.count+4 {
		if items := binary.BigEndian.Uint32(data[l.count:]); uint64(items)*uint64(l.item) > uint64(len(data)-l.count-4) {
			return fmt.Errorf("read %s: %w", m.GetMessageName(), errList)
		}
	}
	if err := codec.DecodeMsg(data, m); err != nil {
		return fmt.Errorf("read %s: %w", m.GetMessageName(), err)
	}
	return nil
}

// finish ends the request, once.
func (r *request) finish(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
	})
}

// retval is what the dataplane answered; 0 is success.
func (r *request) retval() api.VPPApiError {
	field := reflect.ValueOf(r.reply).Elem().FieldByName("Retval")
	if r.dump || !field.IsValid() {
		return 0
	}
	return api.VPPApiError(field.Int())
}

// MissingMessage says that the dataplane lacks a message, or knows another one of that name.
type MissingMessage struct {
	Name   string
	CRC    string
	Plugin string // of VPP, that has the message; "" if none
}

func newMissingMessage(m api.Message) *MissingMessage {
	return &MissingMessage{Name: m.GetMessageName(), CRC: m.GetCrcString(), Plugin: pluginOf(m)}
}

// Error names message and CRC.
func (e *MissingMessage) Error() string {
	return fmt.Sprintf("the dataplane lacks the API message %s with CRC %s", e.Name, e.CRC)
}

// pluginOf is the plugin of VPP whose message m is.
func pluginOf(m api.Message) string {
	switch file := path.Base(reflect.TypeOf(m).Elem().PkgPath()); file {
	case "acl", "af_packet", "memif", "vxlan":
		return file + "_plugin.so"
	case "tapv2": // a part of VPP itself before 26.06
		return "tap_plugin.so"
	}
	return ""
}

func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

var errClosed = errors.New("connection closed by us")
