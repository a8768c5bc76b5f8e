package vpp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// threadsOf returns VPP's report of its threads.
func threadsOf(workers int) *vlib.ShowThreadsReply {
	reply := &vlib.ShowThreadsReply{ThreadData: []vlib.ThreadData{{Name: "vpp_main"}}}
	for i := range workers {
		reply.ThreadData = append(reply.ThreadData, vlib.ThreadData{
			ID:   uint32(i + 1),
			Name: fmt.Sprint("vpp_wk_", i),
			Type: "workers",
		})
	}
	return reply
}

// placement is a queue of an interface on a thread as VPP counts them: 0 is the main one.
func placement(port, queue, thread int) *interfaces.SwInterfaceRxPlacementDetails {
	return &interfaces.SwInterfaceRxPlacementDetails{
		SwIfIndex: interface_types.InterfaceIndex(port), QueueID: uint32(queue), WorkerID: uint32(thread),
	}
}

func linksOf(ports ...int) (links []*af_packet.AfPacketDetails) {
	for _, p := range ports {
		links = append(links, &af_packet.AfPacketDetails{SwIfIndex: interface_types.InterfaceIndex(p)})
	}
	return links
}

func TestOnlyVethsCountAgainstTheLimit(t *testing.T) {
	placed := []*interfaces.SwInterfaceRxPlacementDetails{
		placement(1, 0, 0), placement(1, 1, 0), placement(2, 0, 0), placement(3, 0, 0),
	}
	if got := newPollers(threadsOf(0), linksOf(1, 2), placed, 15).free(); got != 12 {
		t.Errorf("main thread with 3 queues of veths and a memif: room for %d, want 12", got)
	}
	placed = []*interfaces.SwInterfaceRxPlacementDetails{placement(1, 0, 1), placement(2, 0, 2), placement(3, 0, 2)}
	if got := newPollers(threadsOf(2), linksOf(1, 2), placed, 15).free(); got != 28 {
		t.Errorf("two workers with a veth each: room for %d, want 28", got)
	}
}

// No worker has more queues than it can read afterwards, if all workers together can read them.
func TestQueuesAreSpreadOverWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 8).Draw(t, "workers")
		limit := rapid.IntRange(1, 15).Draw(t, "limit")
		queues := rapid.SliceOfN(rapid.IntRange(1, workers), 0, workers*limit).Draw(t, "workers of the queues")
		var placed []*interfaces.SwInterfaceRxPlacementDetails
		var ports []int
		at := map[Index]int{}
		for i, worker := range queues {
			placed = append(placed, placement(i, 0, worker))
			ports = append(ports, i)
			at[Index(i)] = worker - 1
		}
		for _, m := range newPollers(threadsOf(workers), linksOf(ports...), placed, limit).overload() {
			at[m.port] = m.to
		}
		for worker := range workers {
			n := 0
			for _, w := range at {
				if w == worker {
					n++
				}
			}
			if n > limit {
				t.Errorf("worker %d has %d queues, limit is %d", worker, n, limit)
			}
		}
	})
}

func TestLinksOfTheNodeGetRoomBeforeThoseOfPods(t *testing.T) {
	var items []*interfaceItem
	for _, name := range []string{"pod-a", "pod-b", "pod-with-many-queues", "weft-host", "weft-vtep"} {
		it := &interfaceItem{Name: name, Want: wire.Interface{Type: wire.TypeAFPacket}}
		if name == "pod-with-many-queues" {
			it.Want.AFPacket.RxQueues = 2
		}
		items = append(items, it)
	}
	admit(items, func(name string) bool { return strings.HasPrefix(name, "weft-") }, 3, ErrVeths)
	var refused []string
	for _, it := range items {
		if it.Err != nil {
			refused = append(refused, it.Name)
		}
	}
	if want := []string{"pod-b", "pod-with-many-queues"}; !slices.Equal(refused, want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
}

func TestRefusedVethDoesNotCountAgainstTheLimit(t *testing.T) {
	large := &interfaceItem{
		Name: "large",
		Want: wire.Interface{Type: wire.TypeAFPacket, AFPacket: wire.AFPacket{RxQueues: 4}},
	}
	small := &interfaceItem{Name: "small", Want: wire.Interface{Type: wire.TypeAFPacket}}
	admit([]*interfaceItem{large, small}, func(string) bool { return false }, 3, ErrVeths)
	if large.Err == nil || small.Err != nil {
		t.Errorf("large: %v, small: %v", large.Err, small.Err)
	}
}

// The tag is the only evidence of GSO on a dataplane that does not report it, so it must follow GSO.
func TestTagOfATapLacksGSOBeforeItIsEnabled(t *testing.T) {
	v := wire.Interface{Type: wire.TypeTap, GSO: true, Tap: wire.Tap{Name: "eth0"}}
	r, release, err := newTap("a", v)
	must(t, err)
	defer release()
	if tag := r.msg.(*tapv2.TapCreateV3).Tag; tag == interfaceTag("a", v) {
		t.Errorf("a tap without GSO has the tag %s of one with it", tag)
	}
}

// linkGround is an object that the links stand on, for there is no scheduler of veths here.
var linkGround = wire.NamespaceKey("/links")

// flooded are pairs with one end, which the dataplane is to hold, that gets packets all the time until the test ends.
func flooded(t *testing.T, n int) (objects []object) {
	t.Helper()
	stop := make(chan struct{})
	var senders sync.WaitGroup
	t.Cleanup(func() { close(stop); senders.Wait() })
	for i := range n {
		name := fmt.Sprintf("flood%02d", i)
		pair := netlink.NewVeth(netlink.NewLinkAttrs())
		pair.Name = "weft" + name
		pair.PeerName = name
		must(t, netlink.LinkAdd(pair))
		t.Cleanup(func() { _ = netlink.LinkDel(pair) })
		peer, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(pair))
		must(t, netlink.LinkSetUp(peer))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		must(t, err)
		frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, byte(i), 0x88, 0xb5},
			make([]byte, 50))
		to := &unix.SockaddrLinklayer{Ifindex: peer.Attrs().Index}
		senders.Go(func() {
			defer unix.Close(fd)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Sendto(fd, frame, 0, to)
				}
			}
		})
		objects = append(objects, object{wire.InterfaceKey(name), wire.Interface{
			Type: wire.TypeAFPacket, Up: true, AFPacket: wire.AFPacket{Link: pair.Name, On: linkGround},
		}})
	}
	return objects
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFloodLab(t *testing.T, workers int) *lab {
	t.Helper()
	netnstest.Require(t)
	if dataplane.Prefix() == "" {
		t.Skip("needs " + dataplane.PrefixVariable + ": weft-vswitch has no limit")
	}
	d := dataplane.Run(t, dataplane.Options{Workers: workers})
	l := newLabOn(t, d.Socket())
	l.mustCommit(object{linkGround, wire.Namespace{Path: "/links"}})
	return l
}

// VPP survives the maximum of busy veths, and gets no more.
func TestVPPAnswersWithTheMaximumOfVeths(t *testing.T) {
	for workers := range min(3, runtime.NumCPU()) { // VPP needs a core for each thread
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			l := newFloodLab(t, workers)
			room := max(1, workers) * MaxVethsPerThread
			veths := flooded(t, room+1)
			for _, o := range veths[:room] {
				l.mustCommit(o)
			}
			if err := l.commit(veths[room]); !errors.Is(err, ErrVeths) {
				t.Fatalf("one more is not refused for want of room: %v", err)
			}
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
				must(t, l.client.Ping(t.Context()))
			}
			// Room that VPP did not deal out evenly: all veths of one worker go, and as many come.
			for _, o := range veths[:room] {
				l.mustCommit(object{o.key, nil})
			}
			for _, o := range veths[1:] {
				l.mustCommit(o)
			}
			must(t, l.client.Ping(t.Context()))
		})
	}
}

func TestTheSwitchHasNoLimitOfVeths(t *testing.T) {
	netnstest.Require(t)
	if dataplane.Prefix() != "" {
		t.Skip("VPP has one")
	}
	l := newLab(t)
	l.mustCommit(object{linkGround, wire.Namespace{Path: "/links"}})
	for _, o := range flooded(t, MaxVethsPerThread+5) {
		l.mustCommit(o)
	}
}
