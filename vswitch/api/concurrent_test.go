package api

import (
	"fmt"
	"sync"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestConcurrentClientsAndEventsLeaveNoState(t *testing.T) {
	r := start(t, Limits{})
	var wg sync.WaitGroup
	for n := range 6 {
		a := newTestClient(t.Context(), r.connect(t))
		mustInvoke(t, a, a.ifs.WantInterfaceEvents, &interfaces.WantInterfaceEvents{EnableDisable: 1})
		wg.Go(func() { comeAndGo(t, a, n) })
	}
	wg.Go(func() {
		for n := range uint32(300) {
			r.model.Handle(forward.Event{
				Kind:      forward.NeighbourLearned,
				Interface: n % 50,
				Addr:      prefix("10.0.0.9/32").Addr(),
			})
		}
	})
	wg.Wait()
	_ = r.model.Neighbours.Flush(0, forward.IP4) // only the events above have added neighbours to local0
	if list := r.model.Interfaces.List(model.InterfaceFilter{}); len(list) != 1 {
		t.Fatalf("left: %+v", list)
	}
	r.engine.Look(func(s modeltest.State) {
		if len(s.Interfaces) != 1 || len(s.Tables) != 2 || len(s.Neighbours) != 0 {
			t.Fatalf("left in the engine: %+v", s)
		}
	})
}

// comeAndGo creates and deletes objects in the VRF of client n.
func comeAndGo(t *testing.T, a *testClient, n int) {
	table := ip.IPTable{TableID: uint32(n + 1)}
	for range 20 {
		_, err := invoke(errorer{t}, a, a.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{IsAdd: true, Table: table})
		loop, err2 := invoke(errorer{t}, a, a.ifs.CreateLoopback, &interfaces.CreateLoopback{})
		if err != nil || err2 != nil {
			t.Error(err, err2)
			return
		}
		_, err = invoke(errorer{t}, a, a.ifs.SwInterfaceSetTable, &interfaces.SwInterfaceSetTable{
			SwIfIndex: loop.SwIfIndex,
			VrfID:     table.TableID,
		})
		a.setUp(errorer{t}, loop.SwIfIndex, true)
		err2 = a.address(errorer{t}, loop.SwIfIndex, fmt.Sprintf("10.%d.0.1/24", n), true)
		if list := a.interfaces(errorer{t}); err != nil || err2 != nil || len(list) < 2 {
			t.Error(err, err2, len(list))
		}
		_, err = invoke(errorer{t}, a, a.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: loop.SwIfIndex})
		_, err2 = invoke(errorer{t}, a, a.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{Table: table})
		if err != nil || err2 != nil {
			t.Error(err, err2)
		}
	}
}

// errorer is a testingT for goroutines, which may not call Fatalf.
type errorer struct{ *testing.T }

func (e errorer) Fatalf(format string, args ...any) { e.Errorf(format, args...) }

// A client can register again while an event is sent to it.
func TestRegisterAgainDuringEventsIsNoDataRace(t *testing.T) {
	r := start(t, Limits{})
	c := r.register(t)
	c.sendFrame(t, c.request(r.Server, &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 7}, 1))
	c.receive(t)
	create := appendFrame(nil,
		must(codec.EncodeMsg(&memclnt.SockclntCreate{Name: "again"}, fixedIDs["sockclnt_create"])))
	go func() {
		for err := error(nil); err == nil; {
			_, err = c.Write(create)
		}
	}()
	eventually(t, func() bool { // until the full queue closes the connection
		for range 10000 {
			r.InterfaceChanged(model.InterfaceEvent{Index: 1})
		}
		r.events.mu.Lock()
		defer r.events.mu.Unlock()
		return len(r.events.pids) == 0
	})
}
