package networks

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// Restore takes over the pools, blocks and custom networks of an earlier run, in this order.
func (n *Networks) Restore(p *SavedPools, blocks []SavedBlock, networks []SavedNetwork) {
	n.restorePools(p)
	n.restoreBlocks(blocks)
	n.restoreNetworks(networks)
}

func (n *Networks) restoreNetworks(saved []SavedNetwork) {
	customs := maps.Clone(n.Customs())
	for _, s := range saved {
		c, err := n.newCustom(s)
		if err != nil {
			n.Config.Log.Warn("network not restored", "network", s.Network.Name, "err", err)
			continue
		}
		customs[s.Network.Name] = c
	}
	n.customs.Store(&customs)
}

// WithholdAddresses prevents the allocation of addresses until the agent ends: the addresses of an interface that could
// not be reconstructed, and that a pod may be using. Current leases stay.
func (n *Networks) WithholdAddresses(object string, addresses []netip.Addr) {
	for _, a := range addresses {
		l := ipam.Lease{Address: a, Holder: object + "/" + a.String(), State: ipam.Used, Since: n.Config.Now().UTC()}
		n.withheld = append(n.withheld, l)
		if err := n.addresses.Restore([]ipam.Lease{l}); err != nil {
			n.Config.Log.Debug("address needs not be withheld", "interface", object, "address", a.String(), "err", err)
		}
		for _, c := range n.Customs() {
			n.withhold(c, l)
		}
	}
}

// withhold prevents the allocation of an address of an unknown interface, which may be on the network.
func (n *Networks) withhold(c *Custom, l ipam.Lease) {
	if !slices.ContainsFunc(c.Network.CIDRs, func(p netip.Prefix) bool { return p.Contains(l.Address) }) {
		return
	}
	if err := c.addresses.Restore([]ipam.Lease{l}); err != nil {
		n.Config.Log.Debug("address needs not be withheld", "network", c.Network.Name, "address", l.Address.String(),
			"err", err)
	}
}

// Numbers are the numbers of tables and bridge domains in the dataplane, by label.
type Numbers struct{ Tables, BridgeDomains map[string]uint32 }

// Recognise adopts the wanted networks that have no record and that exist in the dataplane as specified, with their
// numbers there, and returns their records. The dataplane has no VNI: a VNI of the node's own choice is allocated
// again.
func (n *Networks) Recognise(wanted []pod.Network, there Numbers) []SavedNetwork {
	taken := make(map[uint32]bool)
	for _, c := range n.Customs() {
		taken[c.VNI] = true
	}
	for _, w := range wanted {
		taken[w.VNI] = true
	}
	var recognised []SavedNetwork
	for _, w := range slices.SortedFunc(slices.Values(wanted), chosenVNIFirst) {
		if n.Custom(w.Name) != nil || validate(w) != nil {
			continue
		}
		s, err := n.recognise(ordered(w), there, taken)
		if errors.Is(err, errNew) {
			continue
		}
		if err != nil {
			n.Config.Log.Warn("network not recognised in the dataplane", "network", w.Name, "err", err)
			continue
		}
		taken[s.VNI] = true
		recognised = append(recognised, s)
	}
	n.restoreNetworks(recognised)
	return slices.DeleteFunc(recognised, func(s SavedNetwork) bool { return n.Custom(s.Network.Name) == nil })
}

// errNew means that the dataplane has nothing of a network.
var errNew = errors.New("it has no objects in the dataplane")

func (n *Networks) recognise(w pod.Network, there Numbers, taken map[uint32]bool) (s SavedNetwork, err error) {
	label := desired.LabelOf(w.Name)
	s = SavedNetwork{Network: w, Table: there.Tables[label], BridgeDomain: there.BridgeDomains[label], VNI: w.VNI}
	needsTable, needsBridge := n.Config.numbered(w)
	if (needsTable || w.Type == pod.L2) && s.Table == 0 && s.BridgeDomain == 0 {
		return s, errNew
	}
	if needsTable != (s.Table != 0) || (w.Type == pod.L2) != (s.BridgeDomain != 0) {
		return s, fmt.Errorf("it has VRF table %d and bridge domain %d there", s.Table, s.BridgeDomain)
	}
	if needsBridge && w.Type == pod.L3 { // 0 if it is missing: SetNetworks allocates it then
		s.BridgeDomain = there.BridgeDomains[desired.MeshLabelOf(w.Name)]
	}
	if s.VNI == 0 {
		s.VNI, err = n.Config.VNIs.lowest("VNI", taken)
	}
	return s, err
}
