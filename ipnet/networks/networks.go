// Package networks holds the networks of one node: the pools of the network default, custom networks with their
// numbers, and the blocks of addresses that this node allocates from.
package networks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Buckets of the state file. Leases are stored under their own keys, networks under their names, blocks under network
// and prefix.
const (
	LeasesBucket   = "leases"
	networksBucket = "networks"
	blocksBucket   = "blocks"
	poolsBucket    = "pools" // one record
	poolsKey       = "default"
)

// Networks holds the pools of the network default, the custom networks, and the blocks that this node allocates from.
// Its Set methods belong to the event loop; the methods that read may be called from any goroutine.
type Networks struct {
	*registry
	nodeBlocks
	occupancy
	withheld []ipam.Lease // addresses of interfaces without a known attachment
	// by network, why it is missing or not as the cluster specifies it; never changes: a new one replaces it
	refused atomic.Pointer[map[string]string]
}

// registry has the networks with their addresses. Each value behind a pointer never changes: a new one replaces it.
type registry struct {
	Config    Config
	addresses *ipam.Allocator                    // of the network default
	customs   atomic.Pointer[map[string]*Custom] // by name
	pools     atomic.Pointer[PoolSet]            // of the network default
	// the node's addresses in families whose pools are all shared with other nodes
	own atomic.Pointer[map[netaddr.Family]netip.Addr]
}

// New returns the network default with the pools of the configuration. Each pool's node address is the node's from now
// on.
func New(c Config) (*Networks, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	addresses, err := ipam.New(ipam.Config{Pools: c.Pools, CoolDown: c.CoolDown, Now: c.Now})
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	r := &registry{Config: c, addresses: addresses}
	n := &Networks{
		registry:   r,
		nodeBlocks: nodeBlocks{registry: r, blocks: make(map[string]SavedBlock)},
		occupancy:  occupancy{registry: r},
	}
	n.customs.Store(&map[string]*Custom{})
	n.pools.Store(c.pools())
	n.own.Store(&map[netaddr.Family]netip.Addr{})
	n.refused.Store(new(map[string]string))
	n.claims.Store(new([]pod.IPAMClaim))
	return n, nil
}

// Values lists the values of all custom networks without pods.
func (n *Networks) Values() desired.Values {
	var v desired.Values
	customs := n.Customs()
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		v = append(v, customs[name].values(n.MTUOf(customs[name]))...)
	}
	return v
}

// Addresses returns the counts of each pool and the addresses that are not free, of the network default and then of
// each custom network.
func (n *Networks) Addresses() ([]ipam.Stats, []ipam.Lease) {
	stats := n.addresses.Stats()
	leases := n.addresses.Leases()
	for _, s := range n.Saved() {
		if addresses := n.Allocator(s.Network.Name); addresses != nil {
			stats = append(stats, addresses.Stats()...)
			leases = append(leases, addresses.Leases()...)
		}
	}
	return stats, leases
}

// Pools returns the pools of the network default.
func (r *registry) Pools() *PoolSet { return r.pools.Load() }

// Refused says why a network is missing or not as the cluster specifies it; "" if it is.
func (n *Networks) Refused(network string) string { return (*n.refused.Load())[network] }

// Saved lists the custom networks with their numbers, by name.
func (r *registry) Saved() []SavedNetwork {
	customs := r.Customs()
	var networks []SavedNetwork
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		networks = append(networks, customs[name].SavedNetwork)
	}
	return networks
}

// Customs returns the custom networks by name. The map never changes.
func (r *registry) Customs() map[string]*Custom { return *r.customs.Load() }

// Custom returns the custom network of that name; nil if there is none.
func (r *registry) Custom(network string) *Custom { return r.Customs()[network] }

// IsClosed reports whether no pod can be added to a network, because it is closed or missing.
func (r *registry) IsClosed(network string) bool {
	c := r.Custom(network)
	return c == nil || c.Network.Closed
}

// Allocator allocates the addresses of a network, "" or "default" being the network default; nil if the network has no
// addresses. Any goroutine may call it. Blocks that are added to it directly are not saved, and give the node no
// address of its own: SetBlocks does.
func (r *registry) Allocator(network string) *ipam.Allocator {
	if network = desired.NetworkOf(network); network == "" {
		return r.addresses
	}
	if c := r.Custom(network); c != nil {
		return c.addresses
	}
	return nil
}

// SavedNetwork is the record of a custom network: its specification, and the numbers that it has until it is removed.
type SavedNetwork struct {
	Network      pod.Network `json:"network"`
	Table        uint32      `json:"table,omitempty"` // of its VRFs; 0: it has none
	BridgeDomain uint32      `json:"bd,omitempty"`    // of type L2, or of its tunnels
	VNI          uint32      `json:"vni"`
}

// Custom is a custom network with its allocator. It never changes: a new one replaces it.
type Custom struct {
	SavedNetwork
	desired.VRF
	addresses *ipam.Allocator // nil: it has no CIDRs
}

// newCustom returns a network whose addresses are all free.
func (n *Networks) newCustom(s SavedNetwork) (*Custom, error) {
	c := &Custom{
		SavedNetwork: s,
		VRF:          desired.VRF{Label: desired.LabelOf(s.Network.Name), Loopback: desired.LoopbackOf(s.Network.Name)},
	}
	if len(s.Network.CIDRs) == 0 {
		return c, nil
	}
	var err error
	c.addresses, err = ipam.New(ipam.Config{
		Pools:    c.shared(n.Config.Blocks),
		CoolDown: n.Config.CoolDown,
		Now:      n.Config.Now,
	})
	if err != nil {
		return nil, err
	}
	n.blocksOf(s.Network.Name, c.addresses)
	for _, l := range n.withheld {
		n.withhold(c, l)
	}
	return c, nil
}

// shared lists the pools; with blocks other nodes share their addresses.
func (c *Custom) shared(blocks bool) []netaddr.Pool {
	pools := c.Pools()
	for i := range pools {
		pools[i].Blocks = blocks
	}
	return pools
}

// Pools lists one pool for each CIDR.
func (c *Custom) Pools() []netaddr.Pool {
	var pools []netaddr.Pool
	for _, cidr := range c.Network.CIDRs {
		pools = append(pools, netaddr.Pool{
			Name:      desired.PoolOfNetwork(c.Network.Name, netaddr.FamilyOf(cidr.Addr())),
			Prefix:    cidr,
			Gateway:   c.Network.Gateway.Of(cidr.Addr().Is4()),
			NoGateway: c.Network.Gateway.None,
			Reserved:  within(cidr, slices.Concat(c.Network.Reserved, c.Network.MovingAddresses())),
			Excluded:  within(cidr, c.Network.Excluded),
		})
	}
	return pools
}

// within returns the ranges that are in a prefix.
func within(p netip.Prefix, ranges netaddr.Ranges) (inside netaddr.Ranges) {
	for _, r := range ranges {
		if r.Within(p) {
			inside = append(inside, r)
		}
	}
	return inside
}

// values lists the values of a network without pods.
func (c *Custom) values(mtu int) desired.Values {
	var v desired.Values
	if c.Network.Direct {
		return v
	}
	if c.Network.Type == pod.L2 {
		c.domain(&v)
	}
	families := desired.FamiliesOf(c.Network.CIDRs)
	if len(families) == 0 || c.Network.Gateway.None {
		return v
	}
	for _, f := range families {
		v.Add(wire.VRFKey(c.Label, f), wire.VRF{ID: c.Table, Family: f, Label: c.Label})
	}
	v = append(v, c.InterfaceOf(mtu, families)...)
	if c.Network.Type == pod.L2 {
		v.Add(wire.BridgeMemberKey(c.Loopback), wire.BridgeMember{
			BridgeDomain: c.Label,
			Interface:    c.Loopback,
			BVI:          true,
		})
	}
	for _, p := range c.Pools() {
		own := netaddr.Single(p.Node())
		if c.Network.Type == pod.L2 {
			own = netip.PrefixFrom(p.Node(), p.Prefix.Bits())
		} else {
			c.Unreachable(&v, p.Prefix)
		}
		v.Add(wire.AddressKey(c.Loopback, own), wire.Address{Interface: c.Loopback, Prefix: own})
	}
	return v
}

// domain adds the bridge domain of an L2 network, and one for each of its VLANs: a bridge domain has one table of MACs.
func (c *Custom) domain(v *desired.Values) {
	add := func(label string, id uint32) {
		v.Add(wire.BridgeDomainKey(label), wire.BridgeDomain{
			ID: id, Label: label, Learn: true, Flood: true, UUFlood: true, Forward: true, Age: desired.MacAge,
		})
	}
	add(c.Label, c.BridgeDomain)
	for vlan := range c.Network.VLANs.All() {
		add(c.VLANLabel(vlan), c.VLANDomain(vlan))
	}
}

// maxTrunkDomain is the highest number of a bridge domain that leaves room for those of VLANs.
const maxTrunkDomain = 1<<12 - 1

// VLANDomain returns the number of the bridge domain of a VLAN. It is above the numbers of networks.
func (c *Custom) VLANDomain(vlan int) uint32 { return c.BridgeDomain<<12 | uint32(vlan) }

// VLANLabel returns the label of the bridge domain of a VLAN.
func (c *Custom) VLANLabel(vlan int) string { return desired.VLANLabelOf(c.Network.Name, vlan) }

// checkVLANs rejects VLANs without numbers for their bridge domains.
func (c *Custom) checkVLANs() error {
	if len(c.Network.VLANs) > 0 && c.BridgeDomain > maxTrunkDomain {
		return fmt.Errorf("its bridge domain %d is above %d, so its VLANs have no numbers: lower the range of bridge domains",
			c.BridgeDomain, maxTrunkDomain)
	}
	return nil
}

// IsGuarded reports whether pods may neither be routers nor DHCP servers of the network: not if Weft assigns its
// addresses.
func (c *Custom) IsGuarded() bool { return c.Network.Type == pod.L2 && len(c.Network.CIDRs) > 0 }

// validate checks the specification of a network.
func validate(w pod.Network) error {
	if err := w.Validate(); err != nil {
		return err
	}
	for _, cidr := range w.CIDRs {
		if err := (netaddr.Pool{Name: w.Name, Prefix: cidr}).Validate(); err != nil {
			return err
		}
	}
	return nil
}

// IDs is a range of numbers in the dataplane, both ends included.
type IDs struct{ First, Last uint32 }

// lowest returns the lowest number that is not taken. The error names the kind of number, what.
func (r IDs) lowest(what string, taken map[uint32]bool) (uint32, error) {
	for id := uint64(r.First); id <= uint64(r.Last); id++ {
		if !taken[uint32(id)] {
			return uint32(id), nil
		}
	}
	return 0, fmt.Errorf("no %s from %d to %d is free: remove a network", what, r.First, r.Last)
}

// NetworksFor lists the networks that admit pods of a namespace; all networks if it is "".
func (r *registry) NetworksFor(namespace string) []string {
	names := []string{pod.DefaultNetwork, pod.StubNetwork}
	customs := r.Customs()
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		if of := &customs[name].Network; !of.Closed && (namespace == "" || of.Admits(namespace)) {
			names = append(names, name)
		}
	}
	return names
}

// MTUOf is the highest MTU of a network.
func (r *registry) MTUOf(c *Custom) int {
	if c == nil {
		return r.Config.MTU
	}
	return cmp.Or(c.Network.MTU, r.Config.MTU)
}

// FamiliesIn lists the families of the addresses of a network.
func (r *registry) FamiliesIn(network string) []netaddr.Family {
	if c := r.Custom(network); c != nil {
		return desired.FamiliesOf(c.Network.CIDRs)
	}
	if network == "" {
		return r.pools.Load().Families()
	}
	return nil
}
