package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// networks are the networks of the benchmark's node: one for each measured pair of types, and two for ADDs.
func networks() []node.Network {
	var all []node.Network
	for i, name := range []string{"tap-tap", "veth-veth", "tap-veth", "many", "routed"} {
		n := node.Network{Name: name, Type: "L2", CIDRs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, byte(i), 0}), 24),
			netip.MustParsePrefix(fmt.Sprintf("fd00:5:%d::/64", i)),
		}}
		if name == "routed" {
			n.Type = "L3"
		}
		all = append(all, n)
	}
	return all
}

// The extra interfaces of the two pods that send to each other.
const (
	senderInterfaces   = "tt0/tap/tap-tap, vv0/veth/veth-veth, tv0/tap/tap-veth"
	receiverInterfaces = "tt0/tap/tap-tap, vv0/veth/veth-veth, tv0/veth/tap-veth"
)

// way is a path between two pods or namespaces whose traffic is measured.
type way struct {
	name   string
	path   traffic.Path
	toLink string
}

// lab has the ends of the ways: two pods, and two namespaces at a Linux bridge.
type lab struct {
	runtime *node.Runtime
	pods    []*node.Pod
	bridged []string // paths of namespaces
}

// bridgeWay is the name of the reference way.
const bridgeWay = "Linux bridge, veth pairs"

// build makes all ways; the bridge is the first.
func (l *lab) build(ctx context.Context, n *node.Node) (ways []way, err error) {
	w, err := l.buildBridge(n.Dir)
	if err != nil {
		return nil, err
	}
	var links [2][]node.Link
	for i, interfaces := range []string{senderInterfaces, receiverInterfaces} {
		p, err := n.NewPod(fmt.Sprintf("traffic%d", i))
		if err != nil {
			return nil, err
		}
		p.Annotations = map[string]string{customInterfaces: interfaces}
		l.pods = append(l.pods, p)
		result, err := l.runtime.Add(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("ADD of a pod for traffic: %w", err)
		}
		if links[i], err = node.Links(result); err != nil {
			return nil, err
		}
	}
	ways = append(ways, w)
	names := []string{"tap-tap, routed (main)", "tap-tap, L2", "veth-veth, L2", "tap-veth, L2"}
	if !dataplane.HasTaps() {
		names = []string{"veth-veth, routed (main)", "veth-veth, L2"} // veths replace taps
	}
	for i, name := range names {
		to := links[1][i]
		path := traffic.Path{From: l.pods[0].Netns, FromLink: to.Name, To: l.pods[1].Netns, Address: to.Bare()[0]}
		ways = append(ways, way{measured() + ", " + name, path, to.Name})
	}
	return ways, nil
}

// measured returns the dataplane's name.
func measured() string {
	if dataplane.Prefix() != "" {
		return "VPP"
	}
	return "weft-vswitch"
}

// close deletes pods and bridge.
func (l *lab) close(ctx context.Context) error {
	var errs []error
	for _, p := range l.pods {
		errs = append(errs, l.runtime.Del(ctx, p), p.Remove())
	}
	for _, path := range l.bridged {
		errs = append(errs, netns.Remove(path))
	}
	if bridge, err := netlink.LinkByName(bridgeName); err == nil {
		errs = append(errs, netlink.LinkDel(bridge))
	}
	return errors.Join(errs...)
}

// bridgeName is the name of the reference bridge.
const bridgeName = "bench1"

// buildBridge makes a Linux bridge with two namespaces, as the bridge plugin does.
func (l *lab) buildBridge(dir string) (w way, err error) {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)); err != nil {
		return w, fmt.Errorf("make a bridge: %w", err)
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("10.9.0.2/24")}
	for i, prefix := range prefixes {
		path := filepath.Join(dir, fmt.Sprintf("bridged%d", i))
		if err := netns.Make(path); err != nil {
			return w, err
		}
		l.bridged = append(l.bridged, path)
		if err := plug(bridge, path, fmt.Sprintf("bench1p%d", i), prefix); err != nil {
			return w, fmt.Errorf("make a port of the bridge: %w", err)
		}
	}
	path := traffic.Path{From: l.bridged[0], FromLink: "eth0", To: l.bridged[1], Address: prefixes[1].Addr()}
	return way{bridgeWay, path, "eth0"}, nil
}

// plug makes a veth from the bridge into a namespace, where it is eth0.
func plug(bridge netlink.Link, path, name string, prefix netip.Prefix) error {
	namespace, err := os.Open(path)
	if err != nil {
		return err
	}
	defer namespace.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.MasterIndex = bridge.Attrs().Index
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "eth0"
	veth.PeerNamespace = netlink.NsFd(namespace.Fd())
	if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth)); err != nil {
		return err
	}
	return netns.Do(path, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(prefix.String())
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
	})
}
