package vswitch

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/core"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// underlay is a bridge of the kernel that connects nodes.
type underlay struct {
	netns string
	mtu   int
}

func newUnderlay(t testing.TB, mtu int) *underlay {
	t.Helper()
	u := &underlay{netns: netnstest.New(t), mtu: mtu}
	netnstest.Do(t, u.netns, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: mtu}}
		must(t, netlink.LinkAdd(bridge))
		must(t, netlink.LinkSetUp(bridge))
	})
	return u
}

// node is a network namespace on the underlay with a dataplane process.
type node struct {
	netns   string
	n       int
	mtu     int // of its uplink
	socket  string
	process *exec.Cmd
	conn    *core.Connection
}

func (n *node) v4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n.n)}) }
func (n *node) v6() netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(n.n)})
}

// source is the node's address in a family.
func (n *node) source(six bool) netip.Addr {
	if six {
		return n.v6()
	}
	return n.v4()
}

func (u *underlay) node(t testing.TB, n int) *node {
	t.Helper()
	made := u.addNode(t, n)
	made.begin(t)
	return made
}

// addNode adds a node without a dataplane.
func (u *underlay) addNode(t testing.TB, n int) *node {
	t.Helper()
	made := &node{netns: netnstest.New(t), n: n, mtu: u.mtu, socket: filepath.Join(t.TempDir(), "api.sock")}
	f, err := os.Open(made.netns)
	must(t, err)
	defer f.Close()
	name := fmt.Sprintf("node%d", n)
	netnstest.Do(t, u.netns, func() {
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: u.mtu}, PeerName: "uplink",
			PeerMTU: uint32(u.mtu), PeerNamespace: netlink.NsFd(f.Fd())}))
		end, err := netlink.LinkByName(name)
		must(t, err)
		bridge, err := netlink.LinkByName("br0")
		must(t, err)
		must(t, netlink.LinkSetMaster(end, bridge))
		must(t, netlink.LinkSetUp(end))
	})
	made.address(t, 24, 64)
	return made
}

func (n *node) address(t testing.TB, bits4, bits6 int) {
	t.Helper()
	netnstest.Do(t, n.netns, func() {
		uplink, err := netlink.LinkByName("uplink")
		must(t, err)
		must(t, netlink.LinkSetUp(uplink))
		for _, p := range []netip.Prefix{netip.PrefixFrom(n.v4(), bits4), netip.PrefixFrom(n.v6(), bits6)} {
			must(t, netlink.AddrReplace(uplink, uplinkAddress(p)))
		}
	})
}

func uplinkAddress(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Flags: flagsFor(p)}
}

func flagsFor(p netip.Prefix) int {
	if p.Addr().Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// begin starts the node's dataplane and connects to it.
func (n *node) begin(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), apiSocketEnv+"="+n.socket)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	netnstest.Do(t, n.netns, func() { must(t, cmd.Start()) })
	n.process = cmd
	t.Cleanup(func() { n.end(t) })
	eventually(t, func() bool {
		_, err := os.Stat(n.socket)
		return err == nil
	})
	conn, err := core.Connect(socketclient.NewVppClient(n.socket))
	must(t, err)
	n.conn = conn
}

// end stops the node's dataplane, if it runs.
func (n *node) end(t testing.TB) {
	t.Helper()
	if n.process == nil {
		return
	}
	if n.conn != nil {
		n.conn.Disconnect()
	}
	must(t, n.process.Process.Signal(syscall.SIGTERM))
	if err := n.process.Wait(); err != nil {
		t.Errorf("dataplane of node %d: %v", n.n, err)
	}
	n.process = nil
	n.conn = nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
