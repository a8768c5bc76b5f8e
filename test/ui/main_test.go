// Package ui_test opens the operator's page of a real agent, with pods and traffic, in a headless Chromium. It is a
// module of its own, because the driver of the browser needs modules that Weft does not.
package ui_test

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
	"github.com/weftnet/weft/test/traffic"
)

var update = flag.Bool("update", false, "write the screenshots of docs/ui")

func TestMain(m *testing.M) { netnstest.Main(m) }

// chromium returns the path of the browser. Without one the test is skipped, or fails if WEFT_REQUIRE contains
// chromium.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "chromium") {
		t.Fatal("chromium: required (WEFT_REQUIRE) and not installed")
	}
	t.Skip("no Chromium is installed (Debian: apt-get install chromium)")
	return ""
}

// hostile is a pod's name that would be markup if the page parsed it.
const hostile = "<img src onerror>"

// stage starts a node with pods, one of which failed, and with traffic. The address is the URL that weftctl ui prints.
func stage(t *testing.T) (n *node.Node, address string) {
	t.Helper()
	netnstest.RequireTap(t)
	var err error
	n, err = node.New(programs.Build(t), node.Options{CoolDown: time.Minute, Networks: []node.Network{
		{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}},
		{Name: "red", Type: "L3", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24")}},
	}})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, n.Close()) })
	must.Succeed(t, n.StartAgent(t.Context()))
	runtime, err := n.Runtime(io.Discard)
	must.Succeed(t, err)
	add := func(name string) (*node.Pod, []node.Link, error) {
		p, err := n.NewPod(name)
		must.Succeed(t, err)
		p.Namespace = "shop"
		p.Annotations = map[string]string{"contivpp.io/custom-if": "blue0/tap/blue, red0/veth/red"}
		if name == "orders" {
			must.Succeed(t, netns.Do(p.Netns, occupyDefaultRoute))
		}
		if name == "evil" {
			p.Name = hostile
		}
		result, err := runtime.Add(t.Context(), p)
		if err != nil {
			return p, nil, err
		}
		links, err := node.Links(result)
		return p, links, err
	}
	cart, _, err := add("cart")
	must.Succeed(t, err)
	_, links, err := add("catalogue")
	must.Succeed(t, err)
	gone, _, err := add("batch")
	must.Succeed(t, err)
	must.Succeed(t, runtime.Del(t.Context(), gone))
	if _, _, err := add("orders"); err == nil {
		t.Fatal("ADD of a sandbox with a default route succeeded")
	}
	if _, _, err := add("evil"); err != nil {
		t.Logf("ADD of the pod with a hostile name: %v", err)
	}
	for _, l := range links {
		send(t, cart, l)
	}
	return n, open(t, n)
}

// occupyDefaultRoute makes a link with the default route, so that the ADD fails late and is rolled back.
func occupyDefaultRoute() error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	link, err := netlink.LinkByName("other0")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
	})
}

// send sends packets to a link until the test ends.
func send(t *testing.T, from *node.Pod, to node.Link) {
	t.Helper()
	size := map[string]int{"eth0": 1200, "blue0": 700, "red0": 120}[to.Name]
	wait, err := traffic.Trickle(t.Context(), from.Netns, to.Bare()[0], size)
	must.Succeed(t, err)
	t.Cleanup(wait)
}

// background runs a command until the test ends, and returns its output.
func background(t *testing.T, cmd *exec.Cmd) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended
	return out
}

// open runs weftctl ui, and returns its URL.
func open(t *testing.T, n *node.Node) string {
	t.Helper()
	out := background(t,
		exec.CommandContext(t.Context(), n.Program("weftctl"), "--socket", n.Socket(), "ui", "--no-open"))
	url, err := bufio.NewReader(out).ReadString('\n')
	must.Succeed(t, err)
	return strings.TrimSpace(url)
}

// within limits a step in the browser.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 20*time.Second)
}
