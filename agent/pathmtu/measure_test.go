package pathmtu

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
)

// pair makes a veth with an end in another namespace; "" is the test's.
func pair(t *testing.T, near *netlink.Veth, in, far string) {
	t.Helper()
	f, err := os.Open(far)
	must.Succeed(t, err)
	defer f.Close()
	near.PeerNamespace = netlink.NsFd(f.Fd())
	within(t, in, func() { must.Succeed(t, netlink.LinkAdd(near)) })
	if in == "" {
		t.Cleanup(func() { must.Succeed(t, netlink.LinkDel(near)) })
	}
}

func within(t *testing.T, namespace string, f func()) {
	t.Helper()
	if namespace == "" {
		f()
		return
	}
	netnstest.Do(t, namespace, f)
}

// up sets a link up, with addresses, in the calling thread's namespace.
func up(t *testing.T, name string, addresses ...string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must.Succeed(t, err)
	for _, a := range addresses {
		parsed, err := netlink.ParseAddr(a)
		must.Succeed(t, err)
		parsed.Flags = unix.IFA_F_NODAD
		must.Succeed(t, netlink.AddrAdd(l, parsed))
	}
	must.Succeed(t, netlink.LinkSetUp(l))
}

// The router would fragment a packet that may be.
func TestMeasureFindsTheMTUBehindARouter(t *testing.T) {
	router := netnstest.New(t)
	far := netnstest.New(t)
	pair(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "left"}, "", router)
	pair(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "right", MTU: 1400}, PeerName: "far"}, router, far)
	up(t, "near", "192.0.2.1/25")
	route := func(to, by string) {
		_, prefix, err := net.ParseCIDR(to)
		must.Succeed(t, err)
		must.Succeed(t, netlink.RouteAdd(&netlink.Route{Dst: prefix, Gw: net.ParseIP(by)}))
	}
	route("192.0.2.128/25", "192.0.2.2")
	netnstest.Do(t, router, func() {
		up(t, "left", "192.0.2.2/25")
		up(t, "right", "192.0.2.130/25")
		must.Succeed(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	})
	netnstest.Do(t, far, func() {
		up(t, "far", "192.0.2.129/25")
		route("192.0.2.0/25", "192.0.2.130")
	})
	p := Path{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.129"), Needed: 1500}
	if got, err := Measure(t.Context(), p); got != 1400 || err != nil {
		t.Errorf("%d, %v; want 1400", got, err)
	}
}

// The other end of a veth drops longer packets than it may receive, without an ICMP error. It permits the length of a
// VLAN tag, too.
func TestMeasureFindsTheMTUOfASilentPath(t *testing.T) {
	far := netnstest.New(t)
	pair(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", MTU: 1500}, PeerName: "far", PeerMTU: 1396}, "",
		far)
	up(t, "near", "192.0.2.1/24", "2001:db8::1/64")
	netnstest.Do(t, far, func() { up(t, "far", "192.0.2.2/24", "2001:db8::2/64") })
	for _, p := range []Path{
		{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.2")},
		{From: netip.MustParseAddr("2001:db8::1"), To: netip.MustParseAddr("2001:db8::2")},
	} {
		for needed, want := range map[int]int{1500: 1400, 1400: 1400, 1401: 1400, 1390: 1390} {
			p.Needed = needed
			if got, err := Measure(t.Context(), p); got != want || err != nil {
				t.Errorf("%+v: %d, %v; want %d", p, got, err, want)
			}
		}
	}
	netnstest.Do(t, far, func() {
		must.Succeed(t, os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte("1"), 0))
	})
	silent := Path{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.2"), Needed: 1500}
	if got, err := Measure(t.Context(), silent); !errors.Is(err, errSilent) {
		t.Errorf("a node that answers no ping: %d, %v", got, err)
	}
}

// Packets that are lost during the search, for example in a full queue, do not make a path narrow: the last question
// is the first one again. The other end drops as many long packets as the first question and one step have.
func TestLostPacketsDoNotMakeAPathNarrow(t *testing.T) {
	far := netnstest.New(t)
	pair(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", MTU: 1500}, PeerName: "far"}, "", far)
	up(t, "near", "192.0.2.1/24")
	const long = 1000
	lost := attempts*1500 + attemptsWithin*(1500+576)/2
	netnstest.Do(t, far, func() {
		up(t, "far", "192.0.2.2/24")
		dropFirst(t, long, uint64(lost))
	})
	p := Path{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.2"), Needed: 1500}
	if got, err := Measure(t.Context(), p); got != 1500 || err != nil {
		t.Errorf("%d, %v; want 1500", got, err)
	}
}

// dropFirst drops received packets that are longer than length, up to a number of bytes. It runs in the namespace of
// the receiver.
func dropFirst(t *testing.T, length uint32, bytes uint64) {
	t.Helper()
	c, err := nftables.New()
	must.Succeed(t, err)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "lossy"})
	chain := c.AddChain(&nftables.Chain{
		Name:     "input",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyLEN, Register: 1},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, length)},
		&expr.Quota{Bytes: bytes},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := c.Flush(); err != nil {
		t.Skip("needs quotas of nftables: ", err)
	}
}
