package vpp

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// wantTraced traces an interface and sends frames from its other end, a link of a namespace, until one is recorded.
func (l *lab) wantTraced(name, namespace, link string) {
	l.Helper()
	t, err := l.client.OpenTrace(l.Context(), []string{name})
	must(l.T, err)
	defer func() { must(l.T, t.Close(l.Context())) }()
	var socket, index int
	netnstest.Do(l.T, namespace, func() {
		end, err := netlink.LinkByName(link)
		must(l.T, err)
		must(l.T, netlink.LinkSetUp(end))
		index = end.Attrs().Index
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		must(l.T, err)
	})
	defer unix.Close(socket)
	broadcast := slices.Concat(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5},
		make([]byte, 50))
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		must(l.T, unix.Sendto(socket, broadcast, 0, &unix.SockaddrLinklayer{Ifindex: index}))
		paths, err := t.Read(l.Context())
		must(l.T, err)
		for _, p := range paths {
			if p.Source == name && strings.Contains(p.Text, "ethernet-input") {
				return
			}
		}
	}
	l.Errorf("no packet of %s is recorded, %d of other interfaces are", name, t.Others())
}

// The name of the graph node that receives packets from taps is not the same in all releases of VPP.
func TestPacketsFromTapsAreTraced(t *testing.T) {
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	l.mustCommit(object{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: 1}}, object{
		wire.InterfaceKey("a"), wire.Interface{
			Type: wire.TypeTap,
			MAC:  mac1,
			MTU:  1500,
			Up:   true,
			Tap:  wire.Tap{Namespace: path, Name: "eth0", MAC: mac2, MTU: 1500},
		},
	})
	l.wantTraced("a", path, "eth0")
}

func TestPacketsFromVethsAreTraced(t *testing.T) {
	l := newLab(t)
	path := netnstest.New(t)
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "weft-traced"},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(f.Fd()),
	}
	must(t, netlink.LinkAdd(pair))
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	must(t, netlink.LinkSetUp(pair))
	l.mustCommit(object{linkGround, wire.Namespace{Path: "/links"}}, object{wire.InterfaceKey("a"), wire.Interface{
		Type: wire.TypeAFPacket, Up: true, AFPacket: wire.AFPacket{Link: pair.Name, On: linkGround},
	}})
	l.wantTraced("a", path, "eth0")
}

// A dataplane that has no node for a type of interfaces must not look as if no packet came.
func TestTraceWithoutAnInputNodeFails(t *testing.T) {
	l := newLab(t)
	if _, err := (&Trace{client: l.client}).inputNode(t.Context(), "loopback"); err == nil ||
		!strings.Contains(err.Error(), "no graph node that receives packets of interfaces of type loopback") {
		t.Errorf("error %v", err)
	}
}
