package vpp

import (
	"context"
	"fmt"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/internal/statssocket"
)

// TestCountersAreReadWhileInterfacesComeAndGo reads the segment while the dataplane changes its directory.
func TestCountersAreReadWhileInterfacesComeAndGo(t *testing.T) {
	client := connect(t, newRuins(t).socket, Options{})
	c := &cable{t: t, client: client}
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			read, err := client.stats.read(ctx)
			if err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			if err == nil && len(read.combined["rx"]) > 0 && len(read.names) > len(read.combined["rx"][0]) {
				done <- fmt.Errorf("%d names, %d counters", len(read.names), len(read.combined["rx"][0]))
				return
			}
			reads++
		}
		done <- nil
	}()
	for range 10 {
		var made []interface_types.InterfaceIndex
		for i := range 60 {
			reply := &interfaces.CreateLoopbackInstanceReply{}
			c.send(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(100 + i)}, reply)
			made = append(made, reply.SwIfIndex)
		}
		for _, i := range made {
			c.send(&interfaces.DeleteLoopback{SwIfIndex: i}, &interfaces.DeleteLoopbackReply{})
		}
	}
	cancel()
	if err := <-done; err != nil || reads == 0 {
		t.Errorf("after %d readings: %v", reads, err)
	}
	t.Logf("%d readings while 600 interfaces came and went", reads)
}

func TestCountersStartAnewWithTheDataplane(t *testing.T) {
	d := newRuins(t)
	s := newStats(t, statssocket.Of(d.socket))
	first := connect(t, d.socket, Options{})
	loop := &interfaces.CreateLoopbackInstanceReply{}
	c := &cable{t: t, client: first}
	c.send(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 77}, loop)
	deadline := time.Now().Add(time.Minute)
	read, err := s.read(t.Context())
	// the vswitch writes every second
	for err == nil && int(loop.SwIfIndex) >= len(read.names) && time.Now().Before(deadline) {
		read, err = s.read(t.Context())
	}
	if err != nil || int(loop.SwIfIndex) >= len(read.names) || string(read.names[loop.SwIfIndex]) != "loop77" {
		t.Fatal(read, err)
	}
	d.kill(t)
	if _, err := s.read(t.Context()); err == nil {
		t.Error("the segment of a killed dataplane is read")
	}
	d.start(t)
	connect(t, d.socket, Options{}) // waits until it answers
	if read, err = s.read(t.Context()); err != nil || len(read.names) > int(loop.SwIfIndex) {
		t.Errorf("after the restart: %+v, %v", read, err)
	}
}
