package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// Outside: a network of the test with this process, and the card of n1 that is connected to it.
const (
	outside = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-teal}
spec: {type: L2, cidrs: [10.53.0.0/22, "fd00:53::/112"], vni: 5003}
`
	opening = `
apiVersion: contivpp.io/v1
kind: ExternalInterface
metadata: {name: e2e-out}
spec: {network: e2e-teal, nodes: [{node: n1, interface: spare0}]}
`
	card, cable = "spare0", "outside0"
)

var outsiders = []netip.Prefix{netip.MustParsePrefix("10.53.3.250/22"), netip.MustParsePrefix("fd00:53::fff0/112")}

// A spare network card of a node connects a network with a host outside while the object ExternalInterface exists.
func TestPodsReachAnOutsideHostByANetworkCardOfANode(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	s.apply(outside)
	s.plugOutside()
	for _, n := range s.c.Nodes {
		s.createWith("on-"+n.Name, n.Name, "teal/tap/e2e-teal", nil)
	}
	s.apply(opening)
	_, err := s.c.Kubectl(t.Context(), nil, "wait", "--for=condition=Ready", "--timeout=60s",
		"externalinterface/e2e-out")
	s.must(err)
	if len(s.objectsOf(t.Context(), "n1")) == 0 {
		t.Errorf("n1 has no object for the connected card %s", card)
	}
	for _, n := range s.c.Nodes {
		pod := s.ready("on-" + n.Name)
		for _, o := range outsiders {
			s.must(cluster.Eventually(t.Context(), pod.Name+" reaches "+o.Addr().String(),
				func(ctx context.Context) error {
					_, err := s.c.Exec(ctx, pod, "ping", o.Addr().String())
					return err
				}))
		}
	}
	_, err = s.c.Kubectl(t.Context(), []byte(opening), "delete", "-f", "-")
	s.must(err)
	s.must(cluster.Eventually(t.Context(), "no object uses the card of n1", func(ctx context.Context) error {
		if left := s.objectsOf(ctx, "n1"); len(left) > 0 {
			return fmt.Errorf("left over: %v", left)
		}
		return nil
	}))
	s.mustHaveNothingOfTheCard("n1")
	if _, err := s.c.Exec(t.Context(), s.ready("on-n1"), "ping", outsiders[0].Addr().String()); err == nil {
		t.Error("a pod still reaches the host outside")
	}
}

// plugOutside adds a network card to n1 until the test ends; this process is at the other end of its cable.
func (s *space) plugOutside() {
	s.t.Helper()
	here, err := os.Open("/proc/self/ns/net")
	s.must(err)
	defer here.Close()
	s.must(s.c.Node("n1").Do(func() error {
		link := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: card},
			PeerName:      cable,
			PeerNamespace: netlink.NsFd(int(here.Fd())),
		}
		return netlink.LinkAdd(link)
	}))
	link, err := netlink.LinkByName(cable)
	s.must(err)
	s.t.Cleanup(func() { s.must(netlink.LinkDel(link)) })
	for _, o := range outsiders {
		to := &net.IPNet{IP: o.Addr().AsSlice(), Mask: net.CIDRMask(o.Bits(), o.Addr().BitLen())}
		s.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: to, Flags: unix.IFA_F_NODAD}))
	}
	s.must(netlink.LinkSetUp(link))
}

// operation is an operation of a transaction in the output of weftctl.
type operation struct{ Ref, Verb, Outcome string }

// resync makes an agent resync and returns the operations.
func (s *space) resync(node string) (done []operation) {
	s.t.Helper()
	var resync struct{ Event uint64 }
	s.must(s.weftctl(s.t.Context(), node, &resync, "resync", "downstream"))
	var output struct {
		Transactions []struct {
			Event uint64
			Ops   []operation `json:"operations"`
		}
	}
	s.must(s.weftctl(s.t.Context(), node, &output, "transactions"))
	seen := false
	for _, t := range output.Transactions {
		if t.Event == resync.Event {
			seen = true
			done = append(done, t.Ops...)
		}
	}
	if !seen {
		s.t.Errorf("event %d is not among the transactions of %s", resync.Event, node)
	}
	return done
}

// mustHaveNothingOfTheCard makes an agent resync, and fails if the resync found an object of the spare card.
func (s *space) mustHaveNothingOfTheCard(node string) {
	s.t.Helper()
	for _, o := range s.resync(node) {
		if strings.Contains(o.Ref, card) {
			s.t.Errorf("the resync found an object of %s: %+v", card, o)
		}
	}
}

// objectsOf returns a node's desired and applied objects of the spare card.
func (s *space) objectsOf(ctx context.Context, node string) (refs []string) {
	s.t.Helper()
	var output struct{ Objects []struct{ Ref, Phase string } }
	s.must(s.weftctl(ctx, node, &output, "objects"))
	for _, o := range output.Objects {
		if strings.Contains(o.Ref, card) {
			refs = append(refs, o.Ref+" "+o.Phase)
		}
	}
	return refs
}
