package vswitch

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
)

// BenchmarkTCPBetweenNodes measures a TCP flow between pods of two nodes, with an underlay of veths and a bridge of the
// kernel: through tunnels of the dataplane, and through vxlan devices and bridges of the kernel.
func BenchmarkTCPBetweenNodes(b *testing.B) {
	netnstest.Require(b)
	b.Run("vswitch", func(b *testing.B) {
		u := newUnderlay(b, 1500)
		x := u.node(b, 1)
		y := u.node(b, 2)
		mesh(b, false, x, y)
		stream(b, x.meshPod(b, 11), y.meshPod(b, 12), 12)
	})
	b.Run("kernel", func(b *testing.B) {
		u := newUnderlay(b, 1500)
		x := u.addNode(b, 1)
		y := u.addNode(b, 2)
		stream(b, x.kernelPod(b, y, 11), y.kernelPod(b, x, 12), 12)
	})
}

// stream sends b.N megabytes.
func stream(b *testing.B, from, to pod, host int) {
	b.Helper()
	ping(b, from, to.prefix4(host))
	l := listen(b, to, func() (net.Listener, error) { return net.Listen("tcp4", "0.0.0.0:7000") })
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, struct{ io.Reader }{c})
		got <- n
	}()
	server := netip.MustParsePrefix(to.prefix4(host)).Addr().String() + ":7000"
	c := listen(b, from, func() (net.Conn, error) { return net.DialTimeout("tcp4", server, 10*time.Second) })
	chunk := make([]byte, 1<<20)
	b.SetBytes(int64(len(chunk)))
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	if n := <-got; n != int64(b.N)<<20 {
		b.Errorf("%d bytes arrived", n)
	}
	b.StopTimer()
}

// kernelPod adds a pod to a node without a dataplane: a veth, a bridge and a vxlan device to the other node.
func (n *node) kernelPod(t testing.TB, other *node, host int) pod {
	t.Helper()
	p := pod{netns: netnstest.New(t), n: bridgeNet}
	f, err := os.Open(p.netns)
	must(t, err)
	defer f.Close()
	netnstest.Do(t, n.netns, func() {
		uplink, err := netlink.LinkByName("uplink")
		must(t, err)
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		tunnel := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vxlan0", MTU: 1430},
			VxlanId:   meshVNI,
			Port:      4789,
			Learning:  true,
			SrcAddr:   n.v4().AsSlice(), Group: other.v4().AsSlice(), VtepDevIndex: uplink.Attrs().Index,
		}
		veth := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: "pod"},
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(f.Fd()),
		}
		for _, link := range []netlink.Link{bridge, tunnel, veth} {
			must(t, netlink.LinkAdd(link))
			must(t, netlink.LinkSetUp(link))
			if link != bridge {
				must(t, netlink.LinkSetMaster(link, bridge))
			}
		}
	})
	netnstest.Do(t, p.netns, func() {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetUp(eth0))
		p.onLink(t, host)
	})
	p.setMTU(t, 1430)
	return p
}
