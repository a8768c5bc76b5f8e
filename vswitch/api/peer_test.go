package api

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/vswitch/model"
)

func TestMalformedMessageClosesOnlyItsConnection(t *testing.T) {
	r := start(t, Limits{})
	good := r.register(t)
	for name, send := range map[string]func(c *rawClient) []byte{
		"a length out of range": func(*rawClient) []byte { return make([]byte, frameHeader) },
		"an id that is not advertised": func(c *rawClient) []byte {
			return appendFrame(nil, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0})
		},
		"the id of a reply": func(c *rawClient) []byte {
			return appendFrame(nil, []byte{0, 18, 0, 0, 0, 0, 0, 0, 0, 0})
		},
		"a request without a header": func(c *rawClient) []byte { return appendFrame(nil, []byte{0, 23, 0, 0, 0, 0}) },
		"the client index of another connection": func(c *rawClient) []byte {
			return appendFrame(nil, (&rawClient{index: good.index}).request(r.Server, &memclnt.ControlPing{}, 1))
		},
		"truncated fields": func(c *rawClient) []byte {
			return appendFrame(nil, c.request(r.Server, &vlib.CliInband{Cmd: "show version"}, 1)[:20])
		},
		"a string longer than the message": func(c *rawClient) []byte {
			data := c.request(r.Server, &vlib.CliInband{Cmd: "show version"}, 1)
			binary.BigEndian.PutUint32(data[10:], ^uint32(0))
			return appendFrame(nil, data)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := r.register(t)
			if _, err := bad.Write(send(bad)); err != nil {
				t.Fatal(err)
			}
			if !bad.closed() {
				t.Fatal("the connection is still open, or the server sent a reply")
			}
			if !good.answers(t, r.Server) {
				t.Fatal("another connection was affected")
			}
		})
	}
}

func TestRequestBeforeHandshakeClosesTheConnection(t *testing.T) {
	r := start(t, Limits{})
	c := r.dial(t)
	c.sendFrame(t, c.request(r.Server, &memclnt.ControlPing{}, 1))
	if !c.closed() {
		t.Fatal("still open")
	}
}

func TestSilentClientIsDroppedAfterHandshakeTimeout(t *testing.T) {
	c := start(t, Limits{Handshake: 20 * time.Millisecond}).dial(t)
	if !c.closed() {
		t.Fatal("still open")
	}
}

func TestClientsAboveTheLimitAreRejectedUntilOneDisconnects(t *testing.T) {
	r := start(t, Limits{Clients: 2})
	first := r.register(t)
	second := r.register(t)
	if !r.dial(t).closed() {
		t.Fatal("a third client was accepted")
	}
	if !first.answers(t, r.Server) || !second.answers(t, r.Server) {
		t.Fatal("the accepted clients were affected")
	}
	first.Close()
	eventually(t, func() bool {
		c := r.dial(t)
		defer c.Close()
		if err := c.Conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := c.r.Peek(1)
		var timeout net.Error
		return errors.As(err, &timeout) && timeout.Timeout() // accepted: the server waits for the handshake
	})
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	r := start(t, Limits{})
	c := r.register(t)
	var all []byte
	const n = 500
	for i := range uint32(n) {
		m := c.request(r.Server, &memclnt.ControlPing{}, i)
		if i%2 == 1 {
			m = c.request(r.Server, &vpe.ShowVersion{}, i)
		}
		all = appendFrame(all, m)
	}
	go c.Write(all) //nolint:errcheck // receive below detects a failure
	for i := range uint32(n) {
		if got := binary.BigEndian.Uint32(c.receive(t)[2:]); got != i {
			t.Fatalf("reply %d has context %d", i, got)
		}
	}
}

func TestSockclntDeleteIsAnsweredAndClosesTheConnection(t *testing.T) {
	r := start(t, Limits{})
	c := r.register(t)
	c.sendFrame(t, c.request(r.Server, &memclnt.SockclntDelete{Index: c.index}, 9))
	var reply memclnt.SockclntDeleteReply
	if err := codec.DecodeMsg(c.receive(t), &reply); err != nil || reply.Response != 1 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if !c.closed() {
		t.Fatal("still open")
	}
}

func TestGovppFindsSockclntDeleteAndNotItsReply(t *testing.T) {
	last := ""
	for _, e := range start(t, Limits{}).table.entries() {
		if strings.HasPrefix(e.Name, "sockclnt_delete_") {
			last = e.Name
		}
	}
	if last != messageKey(&memclnt.SockclntDelete{}) {
		t.Fatalf("govpp would send %q", last)
	}
}

func TestPanicOfAHandlerClosesOnlyItsConnection(t *testing.T) {
	r := prepare(t, Limits{})
	r.table.register(set[vpe.ShowVersionReply](func(*model.Model, *vpe.ShowVersion) error { panic("test") }))
	r.serve(t)
	bad := r.register(t)
	good := r.register(t)
	bad.sendFrame(t, bad.request(r.Server, &vpe.ShowVersion{}, 1))
	if !bad.closed() {
		t.Fatal("still open")
	}
	if !good.answers(t, r.Server) {
		t.Fatal("another connection was affected")
	}
}

func TestSlowReaderIsDroppedAndBlocksNoOtherClient(t *testing.T) {
	r := start(t, Limits{Write: 100 * time.Millisecond})
	slow := r.register(t)
	good := r.register(t)
	dump := slow.request(r.Server, &memclnt.APIVersions{}, 1)
	written := make(chan error, 1)
	go func() {
		var err error
		for batch := appendFrame(nil, dump); err == nil; {
			_, err = slow.Write(batch)
		}
		written <- err
	}()
	select {
	case err := <-written:
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("the server neither drops the client nor reads on")
		}
	case <-time.After(time.Minute):
		t.Fatal("not dropped in time")
	}
	if !good.answers(t, r.Server) {
		t.Fatal("another connection was affected")
	}
}

// eventually waits until expected returns true, and fails the test after a minute.
func eventually(t *testing.T, expected func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !expected() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("condition not met in time")
		}
	}
}
