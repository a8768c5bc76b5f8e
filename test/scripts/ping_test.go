package scripts_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// pingCommand: ping FROM TO N sends N echo requests to each address of TO, which must all be answered; after "!", none
// may be. FROM and TO are sandboxes, or the node.
func pingCommand(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if len(args) != 3 {
		usage(ts, "ping FROM TO N")
	}
	if _, err := fmt.Sscan(args[2], &n); err != nil || n < 1 {
		usage(ts, "ping FROM TO N")
	}
	s := on(ts)
	addresses, err := s.addresses(args[1])
	ts.Check(err)
	for _, to := range addresses {
		answered, err := pings(s.netns(ts, args[0]), to, n, neg)
		ts.Check(err)
		if neg && answered > 0 || !neg && answered < n {
			ts.Fatalf("%d of %d echoes from %s to %s (%s) were answered", answered, n, args[0], args[1], to)
		}
	}
}

// reachCommand: reach FROM TO waits until each address of TO answers.
func reachCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "reach FROM TO")
	}
	s := on(ts)
	addresses, err := s.addresses(args[1])
	ts.Check(err)
	for _, to := range addresses {
		ts.Check(reach(s.netns(ts, args[0]), to))
	}
}

func reach(from string, to netip.Addr) error {
	p, err := ping.Open(from, to)
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err = p.Reach(ctx, to)
	return err
}

// pings sends echo requests, each after the reply to the previous one, and counts the replies.
func pings(from string, to netip.Addr, n int, impatient bool) (answered int, err error) {
	p, err := ping.Open(from, to)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	limit := timeout
	if impatient {
		limit = 100 * time.Millisecond
	}
	for seq := range n {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if _, err := p.Once(ctx, to, seq); err == nil {
			answered++
		}
		cancel()
	}
	return answered, nil
}

// netns returns the path of a sandbox's namespace, or of the node's.
func (s *stage) netns(ts *testscript.TestScript, name string) string {
	if name == "node" {
		return s.home
	}
	return s.sandbox(ts, name).path
}

func (s *stage) addresses(name string) ([]netip.Addr, error) {
	if name == "node" {
		return s.nodeAddresses()
	}
	b := s.sandboxes[name]
	if b == nil {
		return nil, fmt.Errorf("unknown sandbox %s", name)
	}
	addresses, err := b.addresses()
	if err == nil && len(addresses) == 0 {
		err = fmt.Errorf("sandbox %s has no addresses of an ADD", name)
	}
	return addresses, err
}

// nodeAddresses returns the global addresses of the node's link to the dataplane.
func (s *stage) nodeAddresses() (addresses []netip.Addr, err error) {
	err = netns.Do(s.home, func() error {
		link, err := netlink.LinkByName(node.HostLink)
		if err != nil {
			return err
		}
		list, err := netlink.AddrList(link, unix.AF_UNSPEC)
		for _, a := range list {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.Unmap().IsLinkLocalUnicast() {
				addresses = append(addresses, addr.Unmap())
			}
		}
		return err
	})
	if err == nil && len(addresses) < 2 {
		err = fmt.Errorf("the node's addresses are %v, want one of each family", addresses)
	}
	return addresses, err
}
