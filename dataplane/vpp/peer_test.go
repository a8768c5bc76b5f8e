package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// peer is a dataplane with the behaviour that a test sets, also a faulty one.
type peer struct {
	t        *testing.T
	socket   string
	messages []api.Message // what it offers; needed by default
	// answer says what to do with a request: the replies to send, or hang up. nil, false: nothing at all.
	answer func(c *call) (replies []api.Message, hangUp bool)

	mu    sync.Mutex
	conns []net.Conn
}

// call is one request that came.
type call struct {
	peer    *peer
	conn    net.Conn
	number  int // of the requests of this connection, from 0
	context uint32
	msg     api.Message
}

// listen starts the peer, until stop is called or the test ends.
func (p *peer) listen() (stop func()) {
	p.t.Helper()
	if p.socket == "" {
		p.socket = filepath.Join(p.t.TempDir(), "s")
	}
	if p.messages == nil {
		p.messages = Needed
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			serving.Go(func() { p.serve(conn) })
		}
	})
	stop = sync.OnceFunc(func() {
		_ = l.Close()
		p.hangUp()
		serving.Wait()
	})
	p.t.Cleanup(stop)
	return stop
}

// hangUp closes all connections.
func (p *peer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *peer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	hello, err := readFrame(r)
	if err != nil {
		return
	}
	table := &memclnt.SockclntCreateReply{Index: 7}
	for i, m := range p.messages {
		table.MessageTable = append(table.MessageTable, memclnt.MessageTableEntry{
			Index: uint16(100 + i),
			Name:  messageKey(m),
		})
	}
	data, err := codec.EncodeMsg(table, 16)
	if err != nil {
		p.t.Error(err)
		return
	}
	copy(data[6:], hello[2:6])
	if _, err := conn.Write(appendFrame(nil, data)); err != nil {
		return
	}
	for n := 0; ; n++ {
		data, err := readFrame(r)
		if err != nil || !p.handle(conn, n, data) {
			return
		}
	}
}

// handle answers one request; false ends the connection.
func (p *peer) handle(conn net.Conn, n int, data []byte) bool {
	like := p.messages[binary.BigEndian.Uint16(data)-100]
	c := &call{peer: p, conn: conn, number: n, context: binary.BigEndian.Uint32(data[6:])}
	c.msg = reflect.New(reflect.TypeOf(like).Elem()).Interface().(api.Message)
	if err := codec.DecodeMsg(data, c.msg); err != nil {
		p.t.Error(err)
		return false
	}
	replies, hangUp := p.answer(c)
	for _, m := range replies {
		c.reply(m)
	}
	return !hangUp
}

// reply sends a message as an answer to the call.
func (c *call) reply(m api.Message) {
	for i, known := range c.peer.messages {
		if messageKey(known) != messageKey(m) {
			continue
		}
		data, err := codec.EncodeMsg(m, uint16(100+i))
		if err != nil {
			c.peer.t.Error(err)
			return
		}
		binary.BigEndian.PutUint32(data[2:], c.context)
		_, _ = c.conn.Write(appendFrame(nil, data))
	}
}

// obliging answers every request with success and every dump with nothing.
func obliging(c *call) ([]api.Message, bool) {
	for i, m := range Needed {
		if reflect.TypeOf(m) == reflect.TypeOf(c.msg) && i+1 < len(Needed) {
			if m.GetMessageName()+"_reply" == Needed[i+1].GetMessageName() {
				return []api.Message{reflect.New(reflect.TypeOf(Needed[i+1]).Elem()).Interface().(api.Message)}, false
			}
		}
	}
	return nil, false
}
