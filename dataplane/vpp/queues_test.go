package vpp

import (
	"testing"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

func TestRequestsHaveTheNumbersOfQueues(t *testing.T) {
	for _, want := range []uint16{1, 3} {
		r, release, err := newTap("a", wire.Interface{
			Type: wire.TypeTap,
			Tap:  wire.Tap{Name: "eth0", Queues: int(want)},
		})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if m := r.msg.(*tapv2.TapCreateV3); m.NumRxQueues != want || m.NumTxQueues != want {
			t.Errorf("a tap of %d is asked for as %+v", want, m)
		}
		on := afPacket("a", wire.Interface{}).value.(wire.Interface)
		on.AFPacket.RxQueues = int(want)
		if m := newAFPacket("a", on, Rings{}).msg.(*af_packet.AfPacketCreateV3); m.NumRxQueues != want ||
			m.NumTxQueues != 1 {
			t.Errorf("%d to read from are asked for as %+v", want, m)
		}
	}
}

func TestTapIsRecreatedForOtherQueues(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	of := func(queues int) object {
		return object{
			wire.InterfaceKey("a"),
			wire.Interface{
				Type: wire.TypeTap,
				MAC:  mac1,
				MTU:  1500,
				Up:   true,
				Tap:  wire.Tap{Namespace: path, Name: "eth0", MAC: mac2, MTU: 1450, Queues: queues},
			},
		}
	}
	l.mustCommit(object{wire.NamespaceKey(path), wire.Namespace{Path: path}}, of(0))
	for _, queues := range []int{2, 5, 1} {
		l.mustCommit(of(queues))
		if rx, tx := netnstest.Queues(t, path, "eth0"); rx != queues || tx != queues {
			t.Errorf("%d and %d queues, want %d", rx, tx, queues)
		}
		l.quiet()
		ports, err := l.client.Inventory().OwnPorts(t.Context())
		if err != nil || len(ports) != 1 {
			t.Fatalf("own ports %+v, error %v", ports, err)
		}
		if rx, tx, made := ports[0].Queues(ports[0].Interface); rx != queues || tx != queues || !made {
			t.Errorf("found out %d and %d queues, %v; want %d", rx, tx, made, queues)
		}
	}
	if ports, err := l.client.Inventory().OwnPorts(t.Context()); err != nil || len(ports) != 1 {
		t.Errorf("own ports %+v, error %v", ports, err)
	} else if _, _, made := ports[0].Queues(wire.Interface{
		Type: wire.TypeTap,
		Tap:  wire.Tap{Namespace: path, Name: "eth1"},
	}); made {
		t.Error("the queues of a tap that another program created are reported")
	}
}

func TestAnInterfaceOnAVethTellsItsQueues(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	on := afPacket("a", wire.Interface{MAC: mac1, MTU: 1400, Up: true}).with(func(v *wire.Interface) {
		v.AFPacket.RxQueues = 2
		v.AFPacket.TxQueues = 7
	})
	l.mustCommit(append(vethOf(t, netnstest.New(t), "a"), on)...)
	l.quiet()
	ports, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil || len(ports) != 1 {
		t.Fatalf("own ports %+v, error %v", ports, err)
	}
	v := ports[0].Interface
	v.AFPacket.On = wire.VethKey("a")
	if rx, tx, made := ports[0].Queues(v); rx != 2 || tx != 7 || !made {
		t.Errorf("found out %d and %d queues, %v", rx, tx, made)
	}
}
