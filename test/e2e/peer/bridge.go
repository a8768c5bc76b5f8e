// Package peer connects pods with the plugins bridge and host-local, so that Weft has something to be compared with.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/image"
	"github.com/weftnet/weft/test/e2e/machine"
)

const (
	network = "peer"
	// leases is where host-local keeps a file for each address in use.
	leases = "/var/lib/cni/networks/" + network
)

// Bridge is the CNI of one kernel bridge a node, with routes between nodes.
type Bridge struct{}

// Name is what reports call it.
func (Bridge) Name() string { return "bridge" }

// Images are none: its programs run on the node itself.
func (Bridge) Images(context.Context) ([]image.Image, error) { return nil, nil }

// Install has nothing to do: there are no manifests.
func (Bridge) Install(context.Context, *cluster.Cluster) error { return nil }

// NodeUp puts plugins and their configuration on the node, and routes to and from the other nodes.
func (Bridge) NodeUp(ctx context.Context, n *cluster.Node) error {
	ranges, err := n.PodCIDRs(ctx)
	if err != nil {
		return err
	}
	if err := n.InstallPlugins("bridge", "host-local"); err != nil {
		return err
	}
	for i, r := range ranges {
		if err := machine.Route(r, n.Addresses[i]); err != nil {
			return err
		}
	}
	if err := n.RoutePods(ctx); err != nil {
		return err
	}
	return configure(n, "10-"+network, ranges)
}

func configure(n *cluster.Node, name string, ranges []netip.Prefix) error {
	content, err := json.Marshal(conflist(ranges))
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return n.Write("/etc/cni/net.d/"+name+".conflist", content, 0o600)
}

// first is the name of a configuration that runtimes take before all others.
const first = "00-" + network

// Before has the bridge connect the node's new pods in place of the CNI that is there, with addresses of ranges that are
// not the node's, until Behind is called. Other nodes do not reach them.
func Before(n *cluster.Node, ranges []netip.Prefix) error {
	if err := n.InstallPlugins("bridge", "host-local"); err != nil {
		return err
	}
	return configure(n, first, ranges)
}

// Behind gives the node's new pods back to the CNI that is there. Pods of the bridge have to be gone.
func Behind(n *cluster.Node) error {
	return n.Do(func() error {
		err := os.Remove("/etc/cni/net.d/" + first + ".conflist")
		if link, missing := netlink.LinkByName("cni0"); missing == nil {
			err = errors.Join(err, netlink.LinkDel(link))
		}
		return err
	})
}

// Has reports whether an address is of ranges that Before was given.
func Has(ranges []netip.Prefix, address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// conflist gives each pod an address from each range and default routes to the bridge.
func conflist(ranges []netip.Prefix) map[string]any {
	var sets []any
	var routes []any
	for _, r := range ranges {
		sets = append(sets, []any{map[string]any{"subnet": r.String()}})
		everywhere := "0.0.0.0/0"
		if r.Addr().Is6() {
			everywhere = "::/0"
		}
		routes = append(routes, map[string]any{"dst": everywhere})
	}
	return map[string]any{
		"cniVersion": "1.1.0", "name": network,
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			"ipam": map[string]any{"type": "host-local", "ranges": sets, "routes": routes},
		}, map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true}},
	}
}

// Leftovers are addresses that are not free and interfaces to pods that are gone.
func (Bridge) Leftovers(_ context.Context, n *cluster.Node) ([]string, error) {
	files, err := n.Files(leases)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, file := range files {
		if _, err := netip.ParseAddr(filepath.Base(file)); err == nil {
			left = append(left, "lease "+filepath.Base(file))
		}
	}
	err = n.Do(func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			if strings.HasPrefix(link.Name, "veth") {
				left = append(left, "interface "+link.Name)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return left, nil
}
