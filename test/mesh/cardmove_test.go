package mesh

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/core"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// cardNode is a node outside of a cluster with a peer. The dataplane owns its card up0, which has the default route.
type cardNode struct {
	*machine
	card  netlink.Link
	other *machine
}

func newCardNode(t *testing.T) *cardNode {
	t.Helper()
	netnstest.Require(t)
	m := &machine{
		t:         t,
		name:      "n1",
		addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8:ff::1/64")},
	}
	other := &machine{t: t, name: "n2", namespace: netnstest.New(t), addresses: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8:ff::2/64"),
	}}
	(&cluster{t: t, nodes: [2]*machine{m, other}}).cable(uplinkMTU)
	up, err := netlink.LinkByName("up0")
	must.Succeed(t, err)
	for _, r := range []netlink.Route{
		{Gw: netip.MustParseAddr("192.0.2.2").AsSlice(), Priority: 100, Protocol: unix.RTPROT_DHCP},
		{Gw: netip.MustParseAddr("2001:db8:ff::2").AsSlice(), Priority: 100, Dst: ipNet(netip.MustParsePrefix("::/0"))},
	} {
		r.LinkIndex = up.Attrs().Index
		must.Succeed(t, netlink.RouteAdd(&r))
	}
	n, err := node.New(programs.Build(t), node.Options{Uplink: "up0"})
	must.Succeed(t, err)
	m.Node = n
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.LogTails(200))
		}
		must.Succeed(t, n.Close())
	})
	return &cardNode{m, up, other}
}

// Either the command moves the card back, or the uninstalling agent does.
func TestCardReturnsToTheKernelWithoutTheAgent(t *testing.T) {
	n := newCardNode(t)
	before := stateOf(t, n.card)
	release := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), n.Program("weft-agent"), "release-uplink", "--config",
			n.Config()).CombinedOutput()
		return string(out), err
	}
	must.Succeed(t, n.StartAgent(t.Context()))
	n.wantCard("weft-uplink0", "up0")
	if out, err := release(); err == nil || !strings.Contains(out, "stop it first") {
		t.Errorf("while an agent runs: %v, %s", err, out)
	}
	must.Succeed(t, n.StopAgent())
	n.wantCard("weft-uplink0", "up0")
	reach(t, "", n.other.own(false)) // the dataplane still forwards
	out, err := release()
	if err != nil || !strings.Contains(out, "returned up0 to the kernel") {
		t.Fatalf("%v, %s", err, out)
	}
	wantState(t, n.card, before)
	for _, six := range []bool{false, true} {
		reach(t, "", n.other.own(six))
	}
	must.Succeed(t, n.StartAgent(t.Context()))
	n.wantCard("weft-uplink0", "up0")
	reach(t, "", n.other.own(true))
	must.Succeed(t, os.WriteFile(filepath.Join(filepath.Dir(n.Socket()), "uninstalled"), nil, 0o600))
	must.Succeed(t, n.StopAgent())
	wantState(t, n.card, before)
	reach(t, "", n.other.own(true))
	if left, _ := filepath.Glob(n.State() + "/card-*"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Without the state file the agent cannot restore the card's addresses, but a DHCP client can.
func TestKernelReceivesOnTheCardAfterTheStateFileIsLost(t *testing.T) {
	n := newCardNode(t)
	must.Succeed(t, n.StartAgent(t.Context()))
	n.wantCard("weft-uplink0", "up0")
	must.Succeed(t, n.StopAgent())
	must.Succeed(t, os.Remove(filepath.Join(n.State(), "card-up0.json")))
	must.Succeed(t, n.Uplink(""))
	must.Succeed(t, n.StartAgent(t.Context()))
	conn, err := nftables.New()
	must.Succeed(t, err)
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyNetdev)
	must.Succeed(t, err)
	if len(tables) > 0 {
		t.Errorf("table %s still keeps the kernel from the card", tables[0].Name)
	}
}

// A foreign table has the name of the table that the card needs.
func TestCardStaysWithTheKernelIfTheDataplaneRefuses(t *testing.T) {
	n := newCardNode(t)
	before := stateOf(t, n.card)
	must.Succeed(t, n.Uplink(""))
	must.Succeed(t, n.StartAgent(t.Context()))
	conn, err := core.Connect(socketclient.NewVppClient(n.DataplaneSocket()))
	must.Succeed(t, err)
	defer conn.Disconnect()
	foreign := &ip.IPTableAddDelV2{IsAdd: true, Table: ip.IPTable{TableID: 2, Name: "foreign"}}
	_, err = ip.NewServiceClient(conn).IPTableAddDelV2(t.Context(), foreign)
	must.Succeed(t, err)
	must.Succeed(t, n.StopAgent())
	must.Succeed(t, n.Uplink("up0"))
	must.Succeed(t, n.BeginAgent())
	k8stest.Eventually(t, "the agent is not ready and names the waiting object", func() bool {
		out, _ := n.Weftctl(t.Context(), "status") // an error while the agent is not ready
		return strings.Contains(out, "linux.uplink/up0 waits for") &&
			!strings.Contains(out, "first resync has not ended")
	})
	if now := stateOf(t, n.card); now != before {
		t.Errorf("state of the card before:\n%s\nafter:\n%s", before, now)
	}
	reach(t, "", n.other.own(false))
	foreign.IsAdd = false
	_, err = ip.NewServiceClient(conn).IPTableAddDelV2(t.Context(), foreign)
	must.Succeed(t, err)
	n.weftctl("resync")
	must.Succeed(t, n.AwaitReady(t.Context()))
	n.wantCard("weft-uplink0", "up0")
	reach(t, "", n.other.own(true))
}

// wantState waits until a link has its former state. VPP sets a card down that it releases; then the kernel generates
// the link-local address again, which takes some time.
func wantState(t *testing.T, l netlink.Link, want string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for stateOf(t, l) != want {
		if time.Now().After(deadline) {
			t.Fatalf("state of the card before:\n%s\nafter:\n%s", want, stateOf(t, l))
		}
	}
}

// The test kills an agent at random moments while it moves the card to the dataplane or back.
func TestNodeKeepsItsAddressesWhenTheAgentIsKilledDuringAMove(t *testing.T) {
	n := newCardNode(t)
	before := stateOf(t, n.card)
	must.Succeed(t, n.StartAgent(t.Context())) // the duration of the move after a start is unknown
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	kills := 20
	if dataplane.Prefix() != "" {
		kills = 8 // the same VPP keeps running, but it is slower
	}
	for i := range kills {
		must.Succeed(t, n.KillAgent())
		must.Succeed(t, n.Uplink([]string{"", "up0"}[i%2]))
		must.Succeed(t, n.BeginAgent())
		moment := time.NewTimer(time.Duration(random.IntN(400)) * time.Millisecond)
		<-moment.C
		must.Succeed(t, n.KillAgent())
		n.wantWhole(t, i)
		if random.IntN(2) == 0 { // change the wanted owner
			must.Succeed(t, n.Uplink([]string{"up0", ""}[i%2]))
		}
		must.Succeed(t, n.BeginAgent())
		must.Succeed(t, n.AwaitReady(t.Context()))
	}
	must.Succeed(t, n.StopAgent())
	must.Succeed(t, n.Uplink(""))
	must.Succeed(t, n.StartAgent(t.Context()))
	wantState(t, n.card, before)
	reach(t, "", n.other.own(false))
}

// wantWhole fails unless each of the node's addresses is on some link, and both families have a default route.
func (m *machine) wantWhole(t *testing.T, round int) {
	t.Helper()
	there := slices.Concat(addressesOn(t, "up0"), addressesOn(t, "weft-uplink0"))
	for _, p := range m.addresses {
		if !slices.Contains(there, p.Addr()) {
			t.Errorf("kill %d: no link has %s", round, p)
		}
	}
	for _, to := range []string{"8.8.8.8", "2001:4860:4860::8888"} {
		if _, err := netlink.RouteGet(net.ParseIP(to)); err != nil {
			t.Errorf("kill %d: to %s: %v", round, to, err)
		}
	}
}

// stateOf returns the kernel's description of a link.
func stateOf(t *testing.T, l netlink.Link) string {
	t.Helper()
	addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	must.Succeed(t, err)
	var lines []string
	for _, a := range addresses {
		lines = append(lines, fmt.Sprint(a.IPNet, a.Broadcast, a.Label, a.Scope, a.ValidLft, a.PreferedLft))
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: l.Attrs().Index},
			netlink.RT_FILTER_OIF)
		must.Succeed(t, err)
		for _, r := range routes {
			lines = append(lines, fmt.Sprint(r, r.Priority, r.Protocol))
		}
	}
	now, err := netlink.LinkByIndex(l.Attrs().Index)
	must.Succeed(t, err)
	lines = append(lines, fmt.Sprint("multicast ", now.Attrs().RawFlags&unix.IFF_ALLMULTI))
	return strings.Join(lines, "\n")
}
