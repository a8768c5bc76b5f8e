// Package peer connects pods with the plugins bridge and host-local, for comparisons with Weft.
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
	// leases is the directory of host-local's leases.
	leases = "/var/lib/cni/networks/" + network
)

// Bridge is a CNI with one Linux bridge per node, and routes between nodes.
type Bridge struct{}

// Name returns the name in reports.
func (Bridge) Name() string { return "bridge" }

// Images returns none: the plugins run on the node.
func (Bridge) Images(context.Context) ([]image.Image, error) { return nil, nil }

// Install does nothing: there are no manifests.
func (Bridge) Install(context.Context, *cluster.Cluster) error { return nil }

// NodeUp copies plugins and their configuration to the node, and adds routes to and from the other nodes.
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

// first is the name of a configuration that precedes all others.
const first = "00-" + network

// Before makes the bridge connect the node's new pods instead of the installed CNI, with addresses outside of the
// node's ranges, until Behind is called. Other nodes cannot reach them.
func Before(n *cluster.Node, ranges []netip.Prefix) error {
	if err := n.InstallPlugins("bridge", "host-local"); err != nil {
		return err
	}
	return configure(n, first, ranges)
}

// Behind makes the installed CNI connect the node's new pods again. Pods of the bridge must be gone.
func Behind(n *cluster.Node) error {
	return n.Do(func() error {
		err := os.Remove("/etc/cni/net.d/" + first + ".conflist")
		if link, missing := netlink.LinkByName("cni0"); missing == nil {
			err = errors.Join(err, netlink.LinkDel(link))
		}
		return err
	})
}

// Has reports whether an address is in ranges of Before.
func Has(ranges []netip.Prefix, address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// conflist is a configuration with an address from each range and default routes to the bridge.
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

// Leftovers lists leases, and interfaces of pods that are gone.
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
