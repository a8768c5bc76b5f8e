package networks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Config configures [Networks]. Only Pools are needed, or Blocks: pods then wait for SetPools and SetBlocks.
type Config struct {
	Pools          []netaddr.Pool      // a pod gets an address of each family that has pools
	NamespacePools map[string][]string // by namespace of Kubernetes, the names of the pools for its pods
	NodePools      []string            // names of the pools for pods whose namespace has none
	// nodes share the addresses of custom networks, and this node allocates from blocks
	Blocks bool

	Ranges

	CoolDown    time.Duration // of released addresses; default 30 s, negative: none
	MTU         int           // of all interfaces, bytes; default: the uplink's without tunnels, at most pod.MaxMTU
	PodVRFTable uint32        // table of the pods' VRF; default 1

	Tunnels

	Now func() time.Time // default time.Now
	Log *slog.Logger     // default: none
}

// Ranges are the ranges of the numbers of custom networks; default 100 to 2^32-2, 1 to 2^24-1, 100 to 2^24-1.
type Ranges struct {
	Tables, BridgeDomains, VNIs IDs
}

// Tunnels are how pods of other nodes are reached. Only custom networks with a VNI of the cluster's choice reach them:
// other nodes do not know a VNI that a node chooses for itself.
type Tunnels struct {
	Tunnel     string // TunnelVXLAN4, TunnelVXLAN6, or TunnelNone, the default
	UplinkMTU  int    // of the path to other nodes, bytes; default 1500
	VNI        uint32 // of the network default; default [DefaultVNI]
	MeshDomain uint32 // the bridge domain of the network default's tunnels; default the last of BridgeDomains
}

func (c Config) withDefaults() Config {
	c.Tunnel = cmp.Or(c.Tunnel, TunnelNone)
	c.MTU = cmp.Or(c.MTU, min(c.PathMTU()-encapsulation[c.Tunnel], pod.MaxMTU))
	c.VNI = cmp.Or(c.VNI, DefaultVNI)
	c.PodVRFTable = cmp.Or(c.PodVRFTable, 1)
	c.Tables = cmp.Or(c.Tables, IDs{100, 1<<32 - 2})
	c.BridgeDomains = cmp.Or(c.BridgeDomains, IDs{1, 1<<24 - 1})
	c.VNIs = cmp.Or(c.VNIs, IDs{100, 1<<24 - 1})
	c.MeshDomain = cmp.Or(c.MeshDomain, c.BridgeDomains.Last)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Pools) == 0 && !c.Blocks {
		return errors.New("at least one pool of addresses is needed")
	}
	if least := desired.LeastMTU(c.pools().Families()); c.MTU < least || c.MTU > pod.MaxMTU {
		return fmt.Errorf("MTU %d is not within %d to %d", c.MTU, least, pod.MaxMTU)
	}
	if err := c.validateTunnel(); err != nil {
		return err
	}
	return c.validateChoices()
}

func (c Config) validateChoices() error {
	for _, p := range c.Pools {
		if strings.Contains(p.Name, ":") {
			return fmt.Errorf("pool %s: a name without colons is needed", p.Name)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(c.NamespacePools)) {
		for _, name := range c.NamespacePools[namespace] {
			if c.pools().pool(name) == nil {
				return fmt.Errorf("namespace %s: there is no pool %q", namespace, name)
			}
		}
	}
	for _, name := range c.NodePools {
		if c.pools().pool(name) == nil {
			return fmt.Errorf("node: there is no pool %q", name)
		}
	}
	return nil
}

func (c Config) pools() *PoolSet {
	return &PoolSet{All: c.Pools, ofNamespace: c.NamespacePools, ofNode: c.NodePools}
}

// numbered reports which numbers a network needs. The tunnels of a routed network are in a bridge domain.
func (c Config) numbered(n pod.Network) (table, bridge bool) {
	return len(n.CIDRs) > 0, !n.Direct && (n.Type == pod.L2 || n.VNI != 0 && c.HasTunnels())
}

// How packets reach other nodes.
const (
	TunnelVXLAN4 = "vxlan4" // inside UDP over IPv4
	TunnelVXLAN6 = "vxlan6" // inside UDP over IPv6
	TunnelNone   = "none"   // routed by the node's kernel on a shared subnet; the network default only
)

// DefaultVNI is the VNI of the network default, unless the configuration has another one.
const DefaultVNI = 10

// encapsulation is the size of the headers of a tunnel, bytes: Ethernet, VXLAN, UDP and the outer IP.
var encapsulation = map[string]int{TunnelNone: 0, TunnelVXLAN4: 14 + 8 + 8 + 20, TunnelVXLAN6: 14 + 8 + 8 + 40}

// Encapsulation is the number of bytes that a tunnel adds to a packet of a pod.
func (c Config) Encapsulation() int { return encapsulation[c.Tunnel] }

// HasTunnels reports whether packets to other nodes are encapsulated.
func (c Config) HasTunnels() bool { return c.Tunnel != TunnelNone }

// mostMTU returns the highest MTU that reaches other nodes without fragments; 0: not known.
func (c Config) mostMTU() int {
	if c.UplinkMTU == 0 && !c.HasTunnels() {
		return 0
	}
	return c.PathMTU() - encapsulation[c.Tunnel]
}

// PathMTU is the MTU between nodes, bytes.
func (c Config) PathMTU() int { return cmp.Or(c.UplinkMTU, 1500) }

func (c Config) validateTunnel() error {
	if _, known := encapsulation[c.Tunnel]; !known {
		return fmt.Errorf("tunnel %q must be %s, %s or %s", c.Tunnel, TunnelVXLAN4, TunnelVXLAN6, TunnelNone)
	}
	if c.VNI > wire.MaxVNI {
		return fmt.Errorf("VNI %d is above %d", c.VNI, wire.MaxVNI)
	}
	return c.carries("the node's interfaces", c.MTU)
}

// carries rejects an MTU that does not fit into the tunnels.
func (c Config) carries(what string, mtu int) error {
	most := c.mostMTU()
	if most == 0 || mtu <= most {
		return nil
	}
	return fmt.Errorf("MTU %d of %s is above %d, which is what %s leaves of the uplink's %d",
		mtu, what, most, c.Tunnel, most+encapsulation[c.Tunnel])
}

// EndOf returns the tunnel endpoint of a node; not valid if the node has no address of that family. Without tunnels it
// is any address of the node.
func (c Config) EndOf(n pod.Node) netip.Addr {
	for _, a := range n.Addresses {
		if !IsHost(a) {
			continue
		}
		if !c.HasTunnels() || a.Is4() == (c.Tunnel == TunnelVXLAN4) {
			return a
		}
	}
	return netip.Addr{}
}

// IsHost reports whether an address can be the address of one machine on a network.
func IsHost(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == ""
}
