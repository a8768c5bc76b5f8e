package vpp

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func TestSentChangesAreAwaitedAfterTheEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var held []*call
	var connected atomic.Bool // the connection itself lists objects
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if !connected.Load() {
			return obliging(c)
		}
		switch c.msg.(type) {
		case *interfaces.SwInterfaceSetFlags:
			if held = append(held, c); len(held) < window {
				return nil, false
			}
			cancel()
			for _, h := range held {
				h.reply(&interfaces.SwInterfaceSetFlagsReply{})
			}
			return nil, false
		case *memclnt.ControlPing, *interfaces.SwInterfaceGetTable: // a dump ends with a ping
			cancel()
			return nil, false
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{Limit: time.Minute})
	connected.Store(true)
	requests := flagsRequests(2 * window)
	c.exchange(ctx, requests...)
	got := count(requests)
	if got["applied"] < window || got["unknown"] != 0 || got["applied"]+got["not applied"] != 2*window {
		t.Errorf("outcomes of changes: %v", got)
	}
	for _, read := range []*request{
		askAll(&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{}),
		ask("table", &interfaces.SwInterfaceGetTable{}, &interfaces.SwInterfaceGetTableReply{}),
	} {
		ctx, cancel = context.WithCancel(t.Context())
		c.exchange(ctx, read)
		cancel()
		if !errors.Is(read.err, context.Canceled) {
			t.Errorf("%s: %v", read.what, read.err)
		}
	}
}

func TestInterfaceCreatedAfterTheEndOfTheContextIsRemoved(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var removed atomic.Value
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		switch m := c.msg.(type) {
		case *af_packet.AfPacketCreateV3:
			cancel()
			return []api.Message{&af_packet.AfPacketCreateV3Reply{SwIfIndex: 5}}, false
		case *af_packet.AfPacketDelete:
			removed.Store(m.HostIfName)
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{})
	batch := []interfaceItem{
		{Name: "a", Want: wire.Interface{Type: wire.TypeAFPacket, Up: true, AFPacket: wire.AFPacket{Link: "wefta"}}},
	}
	ifaces{c}.Create(ctx, batch)
	if got := outcome(batch[0].Err); got != "not applied" || removed.Load() != "wefta" {
		t.Errorf("outcome %s, removed %v: %v", got, removed.Load(), batch[0].Err)
	}
}

func TestChangesAreRefusedAfterAReconnectionUntilTheComparison(t *testing.T) {
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*memclnt.ControlPing); ok {
			return []api.Message{&memclnt.ControlPingReply{}}, false
		}
		return obliging(c)
	}}
	p.listen()
	connected := make(chan string, 10)
	c := connect(t, p.socket, Options{
		Hold:   true,
		Redial: time.Millisecond,
		Events: Events{Connected: func(v string) { connected <- v }},
	})
	<-connected
	background(t, c.Run)
	change := func() error {
		r := flagsRequests(1)[0]
		c.exchange(t.Context(), r)
		return r.fault()
	}
	if err := change(); err != nil {
		t.Errorf("over the first connection: %v", err)
	}
	p.hangUp()
	<-connected
	if err := change(); !errors.Is(err, kvscheduler.ErrDown) || !errors.Is(err, errHeld) ||
		outcome(err) != "not applied" {
		t.Errorf("over the second connection: %v", err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("reads are held too: %v", err)
	}
	stale := c.Hold()
	p.hangUp()
	<-connected
	if stale() || change() == nil {
		t.Error("a change passes over a connection that was not compared")
	}
	if !c.Hold()() {
		t.Error("the present connection is not opened")
	}
	if err := change(); err != nil {
		t.Errorf("over the connection that was compared: %v", err)
	}
}

// A dataplane answers one request after the other: a probe behind long work is not the end of the connection.
func TestRequestBehindLongWorkIsAwaited(t *testing.T) {
	const limit = 2 * time.Second
	asked := make(chan struct{})
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, is := c.msg.(*interfaces.SwInterfaceSetFlags); is {
			select {
			case <-asked:
			case <-t.Context().Done():
			}
			<-time.After(limit / 4)
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{Limit: limit, Probe: time.Hour})
	requests := flagsRequests(6)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.exchange(t.Context(), requests...)
	}()
	s, err := c.current()
	if err != nil {
		t.Fatal(err)
	}
	for s.outstanding() < len(requests) {
		<-time.After(time.Millisecond)
	}
	ping := ask("control_ping", &memclnt.ControlPing{}, &memclnt.ControlPingReply{})
	go func() {
		for s.outstanding() <= len(requests) {
			<-time.After(time.Millisecond)
		}
		close(asked)
	}()
	c.exchange(t.Context(), ping)
	if err := ping.fault(); err != nil {
		t.Error(err)
	}
	<-done
	if got := count(requests); got["applied"] != len(requests) {
		t.Errorf("outcomes of changes: %v", got)
	}
}

// outstanding is how many answers are awaited.
func (s *session) outstanding() int {
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	return len(s.pending.waiting)
}
