package slow_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/vswitch/slow"
)

func TestErrorsOfOnePodDoNotTakeThoseOfOthers(t *testing.T) {
	d := newDataplane(t)
	raw := udp(t, netip.MustParseAddr("10.9.9.9"), 10)
	for range 200 {
		d.give(slow.Message{Reason: slow.Expired, Interface: 1, Sender: 5}, raw)
	}
	if d.drops("slow-path/icmp error rate limited") != 150 {
		t.Errorf("%d errors of the flood were limited", d.drops("slow-path/icmp error rate limited"))
	}
	if len(d.give(slow.Message{Reason: slow.TooBig, Interface: 1, Sender: 6, MTU: 1400}, raw)) != 1 {
		t.Error("another pod is not told the MTU of its path")
	}
}

func TestPodThatScansDoesNotPreventOthersFromResolving(t *testing.T) {
	d := newDataplane(t)
	target := func(n uint16) netip.Addr {
		a := [4]byte{10, 0}
		binary.BigEndian.PutUint16(a[2:], n)
		return netip.AddrFrom4(a)
	}
	scan := func(first uint16, sender uint32) (asked int) {
		for n := range uint16(2000) {
			a := target(first + n)
			asked += len(d.give(slow.Message{Reason: slow.Unresolved, Interface: 1, Sender: sender, Out: 1, Target: a},
				udp(t, a, 10)))
		}
		return asked
	}
	if n := scan(2000, 5); n != 1024 {
		t.Errorf("%d requests of the scan", n)
	}
	a := target(60000)
	if len(d.give(slow.Message{Reason: slow.Unresolved, Interface: 1, Sender: 6, Out: 1, Target: a},
		udp(t, a, 10))) != 1 {
		t.Error("another pod cannot resolve a neighbour")
	}
	if n := scan(10000, 6); n != 511 {
		t.Errorf("the second scan has %d of the resolutions that both share", n)
	}
	if n := scan(20000, 5); n != 0 {
		t.Errorf("the first scan took %d resolutions of the second one", n)
	}
	a = target(60001)
	if len(d.give(slow.Message{Reason: slow.Unresolved, Interface: 1, Sender: 7, Out: 1, Target: a},
		udp(t, a, 10))) != 1 {
		t.Error("a third pod cannot resolve a neighbour")
	}
	// One of the two has one resolution less now. If it took one of the other, they would take them from each other
	// forever.
	if n := scan(30000, 5) + scan(40000, 6); n != 0 {
		t.Errorf("the scans took %d resolutions of each other", n)
	}
}
