package ipnet

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

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Config is what a [Network] is made of. Only Pools are needed.
type Config struct {
	Pools          []ipam.Pool         // a pod gets an address of each family that has pools
	NamespacePools map[string][]string // by namespace of Kubernetes, the names of the pools for its pods
	NodePools      []string            // names of the pools for pods whose namespace has none
	PodInterface   string              // type of the main interface: pod.TypeTap, the default, or pod.TypeVeth

	// What custom networks are numbered with, and the defaults: 100 to 2^32-2, 1 to 2^24-1, 100 to 2^24-1.
	Tables, BridgeDomains, VNIs IDs

	CoolDown    time.Duration    // of released addresses; default 30 s, negative: none
	MTU         int              // of all interfaces, bytes; default 1500
	HostLink    string           // the name that the link to the dataplane has on the node; default weft0
	PodVRFTable uint32           // table of the pods' VRF; default 1
	Now         func() time.Time // default time.Now
	Log         *slog.Logger     // default: none
}

func (c Config) withDefaults() Config {
	c.MTU = cmp.Or(c.MTU, 1500)
	c.HostLink = cmp.Or(c.HostLink, "weft0")
	c.PodVRFTable = cmp.Or(c.PodVRFTable, 1)
	c.PodInterface = cmp.Or(c.PodInterface, pod.TypeTap)
	c.Tables = cmp.Or(c.Tables, IDs{100, 1<<32 - 2})
	c.BridgeDomains = cmp.Or(c.BridgeDomains, IDs{1, 1<<24 - 1})
	c.VNIs = cmp.Or(c.VNIs, IDs{100, 1<<24 - 1})
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Pools) == 0 {
		return errors.New("at least one pool of addresses is needed")
	}
	if least := leastMTU(c.families()); c.MTU < least || c.MTU > 65535 {
		return fmt.Errorf("MTU %d is not within %d to 65535", c.MTU, least)
	}
	if len(c.HostLink) > 15 || strings.ContainsAny(c.HostLink, "/: \t\n") || c.HostLink == "." || c.HostLink == ".." {
		return fmt.Errorf("host link %q is not a name for a link of Linux", c.HostLink)
	}
	if c.PodInterface != pod.TypeTap && c.PodInterface != pod.TypeVeth {
		return fmt.Errorf("pod interface %q is neither tap nor veth", c.PodInterface)
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
			if c.pool(name) == nil {
				return fmt.Errorf("namespace %s: there is no pool %q", namespace, name)
			}
		}
	}
	for _, name := range c.NodePools {
		if c.pool(name) == nil {
			return fmt.Errorf("node: there is no pool %q", name)
		}
	}
	return nil
}

// pool is the pool of that name; nil if there is none.
func (c Config) pool(name string) *ipam.Pool {
	for i := range c.Pools {
		if c.Pools[i].Name == name {
			return &c.Pools[i]
		}
	}
	return nil
}

// leastMTU is the lowest that families bear.
func leastMTU(families []wire.Family) int {
	if slices.Contains(families, wire.IP6) {
		return 1280 // below that the kernel takes IPv6 off the link
	}
	return 576 // what every IPv4 host must take
}

// families are those that have pools, IPv4 first.
func (c Config) families() []wire.Family {
	var prefixes []netip.Prefix
	for _, p := range c.Pools {
		prefixes = append(prefixes, p.Prefix)
	}
	return familiesOf(prefixes)
}

// familiesOf are those of the prefixes, IPv4 first.
func familiesOf(prefixes []netip.Prefix) []wire.Family {
	var families []wire.Family
	for _, f := range []wire.Family{wire.IP4, wire.IP6} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return wire.FamilyOf(p.Addr()) == f }) {
			families = append(families, f)
		}
	}
	return families
}
