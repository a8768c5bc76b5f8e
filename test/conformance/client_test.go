package conformance

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// answerLimit bounds the wait for one answer or event.
const answerLimit = 15 * time.Second

const (
	frameHeader   = 16 // msgbuf_t, with the message's length at offset 8
	requestHeader = 10 // message id, client index, context
	createID      = 15 // sockclnt_create, the only fixed message id
)

// errNotServed means that the dataplane's table lacks the message.
var errNotServed = errors.New("not in the table of messages")

// errWrongID means that the message id of an answer is not the id of the reply or the details.
var errWrongID = errors.New("message id of the answer is not the id of the reply")

// client is a connection to the binary API. It reads in the caller's goroutine, so it keeps the order of answers and
// events.
type client struct {
	conn    net.Conn
	read    *bufio.Reader
	ids     map[string]uint16 // by name_crc
	index   uint32
	context uint32
	events  []*interfaces.SwInterfaceEvent
}

func dial(socket string) (*client, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, read: bufio.NewReader(conn), ids: map[string]uint16{}}
	hello, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: "conformance"}, createID)
	if err != nil {
		return nil, err
	}
	if err := c.write(hello); err != nil {
		return nil, err
	}
	data, err := c.receive()
	if err != nil {
		return nil, err
	}
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(data, reply); err != nil {
		return nil, err
	}
	c.index = reply.Index
	for _, m := range reply.MessageTable {
		c.ids[m.Name] = m.Index
	}
	return c, nil
}

func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

// encode returns the wire format of a message with a new context.
func (c *client) encode(m api.Message) ([]byte, error) {
	id, ok := c.ids[messageKey(m)]
	if !ok {
		return nil, errNotServed
	}
	data, err := codec.EncodeMsg(m, id)
	if err != nil {
		return nil, err
	}
	c.context++
	binary.BigEndian.PutUint32(data[2:], c.index)
	binary.BigEndian.PutUint32(data[6:], c.context)
	return data, nil
}

func (c *client) write(data []byte) error {
	frame := make([]byte, frameHeader, frameHeader+len(data))
	binary.BigEndian.PutUint32(frame[8:], uint32(len(data)))
	_, err := c.conn.Write(append(frame, data...))
	return err
}

// receive reads one message.
func (c *client) receive() ([]byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return nil, err
	}
	var header [frameHeader]byte
	if _, err := io.ReadFull(c.read, header[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(header[8:]))
	_, err := io.ReadFull(c.read, data)
	return data, err
}

// ask sends a message and returns its reply, or the details of a dump and the closing reply: the reply to a ping after
// the dump.
func (c *client) ask(m api.Message) ([]api.Message, error) {
	data, err := c.encode(m)
	if err != nil {
		return nil, err
	}
	answers, isDump := answersOf(m)
	if answers == nil {
		return nil, fmt.Errorf("%s has no reply", m.GetMessageName())
	}
	if err := c.write(data); err != nil {
		return nil, err
	}
	asked := c.context
	if !isDump {
		return c.gather(answers, asked, asked)
	}
	ping, err := c.encode(&memclnt.ControlPing{})
	if err != nil {
		return nil, err
	}
	if err := c.write(ping); err != nil {
		return nil, err
	}
	return c.gather(answers, asked, c.context)
}

// gather reads messages until the one with the context last, and returns the messages with the context asked.
func (c *client) gather(like reflect.Type, asked, last uint32) ([]api.Message, error) {
	var found []api.Message
	wrong := false
	for {
		data, err := c.receive()
		if err != nil {
			return nil, err
		}
		if c.takeEvent(data) {
			continue
		}
		m := reflect.New(like).Interface().(api.Message)
		context := binary.BigEndian.Uint32(data[2:])
		isLike := binary.BigEndian.Uint16(data) == c.ids[messageKey(m)]
		if isLike && m.GetMessageType() == api.RequestMessage { // VPP declares some replies with a client index
			context = binary.BigEndian.Uint32(data[6:])
		}
		switch {
		case context != asked:
		case !isLike:
			wrong = true
		default:
			if err := codec.DecodeMsg(data, m); err != nil {
				return nil, err
			}
			found = append(found, m)
		}
		if context != last {
			continue
		}
		if wrong {
			return found, errWrongID
		}
		return found, nil
	}
}

// takeEvent stores a message if it is an event.
func (c *client) takeEvent(data []byte) bool {
	event := &interfaces.SwInterfaceEvent{}
	if binary.BigEndian.Uint16(data) != c.ids[messageKey(event)] {
		return false
	}
	if err := codec.DecodeMsg(data, event); err == nil {
		c.events = append(c.events, event)
	}
	return true
}

// awaitEvents reads until n events have arrived, and returns them.
func (c *client) awaitEvents(n int) ([]*interfaces.SwInterfaceEvent, error) {
	for len(c.events) < n {
		data, err := c.receive()
		if err != nil {
			return c.events, err
		}
		c.takeEvent(data)
	}
	events := c.events
	c.events = nil
	return events, nil
}

// messageTypes are the types of all messages of govpp, by name.
var messageTypes = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, messages := range api.GetRegisteredMessages() {
		for _, m := range messages {
			types[m.GetMessageName()] = reflect.TypeOf(m).Elem()
		}
	}
	return types
})

// answersOf returns the type of the answers to m: its reply, or the details of a dump.
func answersOf(m api.Message) (answers reflect.Type, isDump bool) {
	name := m.GetMessageName()
	if t, ok := messageTypes()[name+"_reply"]; ok {
		return t, false
	}
	if name == "policer_dump_v2" { // which has no details of its own
		name = "policer_dump"
	}
	return messageTypes()[strings.TrimSuffix(name, "_dump")+"_details"], true
}
