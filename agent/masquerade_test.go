package agent

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

const webPort = 8080

// hello serves connections in a pod: it writes the client's address.
func (l *lab) hello(p *node.Pod) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		listener, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: webPort})
		if err != nil {
			l.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := listener.AcceptTCP()
				if err != nil {
					return // closed
				}
				_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String()) // the client may be gone
				_ = c.Close()
			}
		}()
		l.Cleanup(func() { _ = listener.Close(); <-done })
	})
}

// asks returns the response that a pod gets from an address.
func (l *lab) asks(p *node.Pod, at netip.Addr) (heard string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		dialer := net.Dialer{Timeout: 20 * time.Second}
		c, err := dialer.DialContext(l.Context(), "tcp4", netip.AddrPortFrom(at, webPort).String())
		if err != nil {
			l.Errorf("%s asks %s: %v", p.Name, at, err)
			return
		}
		defer c.Close()
		text, err := io.ReadAll(c)
		if err != nil {
			l.Errorf("%s asks %s: %v", p.Name, at, err)
		}
		heard = string(text)
	})
	return heard
}

// redirectTo adds DNAT from a service address to a pod, as kube-proxy does on the node. Port 0 keeps the port.
func (l *lab) redirectTo(service netip.Addr, to netip.AddrPort) {
	l.Helper()
	c, err := nftables.New()
	if err != nil {
		l.Fatal(err)
	}
	family := nftables.TableFamilyIPv4
	at := uint32(16)
	if service.Is6() {
		family = nftables.TableFamilyIPv6
		at = 24
	}
	dnat := []expr.Any{
		&expr.Payload{
			Base:         expr.PayloadBaseNetworkHeader,
			Offset:       at,
			Len:          uint32(len(service.AsSlice())),
			DestRegister: 1,
		},
		&expr.Cmp{Register: 1, Data: service.AsSlice()},
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
	}
	translate := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: 1}
	if to.Port() != 0 {
		dnat = append(dnat, &expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())})
		translate.RegProtoMin = 2
		translate.Specified = true
	}
	table := c.AddTable(&nftables.Table{Family: family, Name: "proxy"})
	chain := c.AddChain(&nftables.Chain{
		Name:     "prerouting",
		Table:    table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(dnat, translate)})
	if err := c.Flush(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		c.DelTable(table)
		_ = c.Flush() // another Service of the test has the same table
	})
}

func tables(t *testing.T) (names []string) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range all {
		names = append(names, table.Name)
	}
	slices.Sort(names)
	return names
}

// A pod reaches a Service whose only pod is itself, and one of another pod, with rules of kube-proxy. After an
// uninstallation the agent leaves none of its own rules behind.
func TestPodReachesServicesOfItselfAndOfOthers(t *testing.T) {
	l := newLab(t, programs.Build(t))
	one := l.pod("one")
	other := l.pod("other")
	address := l.addresses(l.cni("ADD", one, nil))[0]
	l.cni("ADD", other, nil)
	l.hello(one)
	service := netip.MustParseAddr("10.96.0.1")
	l.redirectTo(service, netip.AddrPortFrom(address, webPort))
	seen := l.asks(one, service)
	if own := l.asks(one, address); seen == "" || seen == own {
		t.Errorf("by its service the pod sees itself as %q, by its address as %q", seen, own)
	}
	if got := l.asks(other, service); got != seen {
		t.Errorf("the address of another pod's client is %q, want the node's %q", got, seen)
	}

	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if got := tables(t); !slices.Equal(got, []string{"proxy", "weft"}) {
		t.Errorf("tables between two agents: %v", got)
	}
	l.start()
	for _, p := range []*node.Pod{one, other} {
		l.cni("DEL", p, nil)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(l.Socket()), uninstalled), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if got := tables(t); !slices.Equal(got, []string{"proxy"}) {
		t.Errorf("tables after the uninstallation: %v", got)
	}
}
