package scripts_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// homeCommand: home PROGRAM ARG... runs a program in the node's namespace.
func homeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		usage(ts, "home PROGRAM ARG...")
	}
	var out []byte
	err := netns.Do(on(ts).home, func() (err error) {
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	_, _ = ts.Stdout().Write(out)
	check(ts, neg, err)
}

// Addresses of the link between the node and an outside machine.
var (
	nodesEnd   = netip.MustParsePrefix("192.0.2.1/24")
	outsideEnd = netip.MustParsePrefix("192.0.2.2/24")
)

// outsideCommand: outside NAME turns a sandbox into a machine outside of the node (192.0.2.2, the node is 192.0.2.1)
// with a route to the pods.
func outsideCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "outside NAME")
	}
	s := on(ts)
	b := s.sandbox(ts, args[0])
	const (
		node    = "uplink0"
		outside = "eth0"
	)
	ts.Check(netns.Do(s.home, func() error {
		fd, err := unix.Open(b.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: node})
		pair.PeerName = outside
		pair.PeerNamespace = netlink.NsFd(fd)
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return addressed(node, nodesEnd)
	}))
	ts.Check(netns.Do(b.path, func() error {
		if err := addressed(outside, outsideEnd); err != nil {
			return err
		}
		_, pods, err := net.ParseCIDR("10.1.0.0/24")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: pods, Gw: nodesEnd.Addr().AsSlice()})
	}))
}

func addressed(name string, p netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// blockedTime is the time without data after which a connection counts as blocked.
const blockedTime = 2 * time.Second

// tcpCommand: tcp FROM ADDRESS:PORT SERVER PORT connects from a sandbox or the node, and expects the answer of a server
// in sandbox SERVER on PORT; after "!", no answer.
func tcpCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 {
		usage(ts, "tcp FROM ADDRESS:PORT SERVER PORT")
	}
	s := on(ts)
	var listener net.Listener
	server := s.sandbox(ts, args[2]).path
	// A process that another script starts holds the listener of the last command until its exec.
	ts.Check(eventually(timeout, func() error {
		return netns.Do(server, func() (err error) {
			listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp4", ":"+args[3])
			return err
		})
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveName(listener, args[2])
	}()
	limit := timeout
	if neg {
		limit = blockedTime
	}
	err := netns.Do(s.netns(ts, args[0]), func() error { return askName(args[1], args[2], limit) })
	ts.Check(listener.Close())
	<-served
	check(ts, neg, err)
}

func serveName(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		_, _ = io.WriteString(c, name)
		_ = c.Close()
	}
}

func askName(address, name string, limit time.Duration) error {
	c, err := net.DialTimeout("tcp4", address, limit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && string(answer) != name {
		err = fmt.Errorf("%s answered %q, want %q", address, answer, name)
	}
	return err
}
