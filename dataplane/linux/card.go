package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// ReadCard reads what the kernel has on a network card of the caller's namespace, so that it can be moved and given back. A card
// with something that would be lost on the way is refused.
func ReadCard(link string) (card wire.Card, err error) {
	err = visit("", Place{}, func(h *handle) error {
		l, err := h.link(link)
		if err != nil {
			return err
		}
		a := l.Attrs()
		switch {
		case a.EncapType != "ether":
			return fmt.Errorf("link %s is of type %s, and not Ethernet", link, a.EncapType)
		case a.MasterIndex != 0:
			return fmt.Errorf("link %s belongs to a bridge, a bond or a VRF of the kernel", link)
		}
		card = wire.Card{Link: link, MAC: macOf(l), MTU: a.MTU, AllMulticast: a.RawFlags&unix.IFF_ALLMULTI != 0}
		if card.Addresses, err = cardAddresses(h, l); err != nil {
			return err
		}
		if card.Routes, err = cardRoutes(h, l, card); err != nil {
			return err
		}
		if ra, err := os.ReadFile(acceptRA(link)); err == nil {
			card.AcceptRA = strings.TrimSpace(string(ra))
		}
		card.Features, err = cardFeatures(l)
		return err
	})
	return card, err
}

// settable are the flags of an address that survive its removal and addition.
const settable = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MCAUTOJOIN

// cardAddresses lists the addresses of a card that move, in the order in which they are to be added. Link-local addresses are
// derived from the card's MAC and stay. Temporary addresses are left out: the kernel makes them itself.
func cardAddresses(h *handle, l netlink.Link) (addresses []wire.CardAddress, err error) {
	var list []netlink.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, listErr := whole(func() ([]netlink.Addr, error) { return h.AddrList(l, family) })
		list, err = append(list, found...), errors.Join(err, listErr)
	}
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
	}
	for _, a := range list {
		p := prefixOf(a.IPNet)
		switch {
		case !p.IsValid() || p.Addr().IsLinkLocalUnicast() || a.Flags&unix.IFA_F_TEMPORARY != 0 && p.Addr().Is6():
			continue
		case a.Peer != nil:
			return nil, fmt.Errorf("address %s of %s has a peer", p, l.Attrs().Name)
		}
		addresses = append(addresses, wire.CardAddress{
			Prefix: p, Broadcast: addrOf(a.Broadcast), Label: a.Label, Scope: a.Scope, Flags: a.Flags & settable,
			Valid: lifetime(a.ValidLft), Preferred: lifetime(a.PreferedLft),
		})
	}
	// The kernel puts a new address of IPv4 last, and one of IPv6 first.
	at := slices.IndexFunc(addresses, func(a wire.CardAddress) bool { return a.Prefix.Addr().Is6() })
	if at >= 0 {
		slices.Reverse(addresses[at:])
	}
	return addresses, nil
}

// lifetime is 0 for one without end.
func lifetime(seconds int) uint32 {
	if seconds <= 0 || seconds == int(^uint32(0)) {
		return 0
	}
	return uint32(seconds)
}

// kernelCardAddress is the inverse of what cardAddresses reads. There is no detection of duplicates: the address was in use all
// the time.
func kernelCardAddress(a wire.CardAddress) *netlink.Addr {
	k := &netlink.Addr{IPNet: ipNet(a.Prefix), Label: a.Label, Scope: a.Scope, Flags: a.Flags}
	if a.Prefix.Addr().Is6() {
		k.Flags |= unix.IFA_F_NODAD
	}
	k.Broadcast = netip.IPv4Unspecified().AsSlice() // none: without this the library adds one
	if a.Broadcast.IsValid() {
		k.Broadcast = a.Broadcast.AsSlice()
	}
	if a.Valid != 0 || a.Preferred != 0 {
		k.ValidLft, k.PreferedLft = int(^uint32(0)), int(^uint32(0))
		if a.Valid != 0 {
			k.ValidLft = int(a.Valid)
		}
		if a.Preferred != 0 {
			k.PreferedLft = int(a.Preferred)
		}
	}
	return k
}

// cardRoutes are the routes of the main table by a card, but for those that the kernel makes for link-local addresses.
func cardRoutes(h *handle, l netlink.Link, card wire.Card) ([]wire.CardRoute, error) {
	list, err := routesByCard(h, l)
	if err != nil {
		return nil, err
	}
	var routes []wire.CardRoute
	for _, r := range list {
		to, name := destinationOf(r), l.Attrs().Name
		switch {
		case r.Table != unix.RT_TABLE_MAIN:
			return nil, fmt.Errorf("route to %s by %s is in table %d: only those of the main table can move", to, name, r.Table)
		case len(r.MultiPath) > 0 || r.Via != nil || r.Encap != nil || r.Type != unix.RTN_UNICAST:
			return nil, fmt.Errorf("route to %s by %s has several paths, another family's gateway, an encapsulation or a type: it cannot move", to, name)
		}
		if !card.Address(wire.FamilyOf(to.Addr())).IsValid() {
			continue // the family stays with the kernel
		}
		routes = append(routes, wire.CardRoute{
			Destination: to, Gateway: addrOf(r.Gw), Source: addrOf(r.Src), Metric: r.Priority, Protocol: int(r.Protocol), Scope: int(r.Scope),
			Flags: r.Flags & unix.RTNH_F_ONLINK, MTU: r.MTU, AdvMSS: r.AdvMSS,
		})
	}
	return routes, nil
}

// routesByCard are all routes that a packet may leave by the card on, of all tables but the local one.
func routesByCard(h *handle, l netlink.Link) ([]netlink.Route, error) {
	var found []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			by := func(n *netlink.NexthopInfo) bool { return n.LinkIndex == l.Attrs().Index }
			is := r.LinkIndex == l.Attrs().Index || slices.ContainsFunc(r.MultiPath, by)
			if is && r.Table != unix.RT_TABLE_LOCAL && !isOfLinkLocal(r) && r.Flags&unix.RTM_F_CLONED == 0 {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// isOfLinkLocal tells a route that the kernel makes for a link-local address, or for multicast.
func isOfLinkLocal(r netlink.Route) bool {
	to := destinationOf(r).Addr()
	return to.Is6() && (to.IsLinkLocalUnicast() || to.IsMulticast()) && r.Protocol == unix.RTPROT_KERNEL
}

// Features that change while the dataplane has a card. Received packets must not be merged to more than the MTU: the dataplane
// forwards frames as they came. A veth passes unfinished checksums on, which a wire does not.
var (
	mergingFeatures  = []string{"rx-gro", "rx-lro", "rx-gro-hw"}
	checksumFeatures = []string{"tx-checksum-ip-generic"}
)

// cardFeatures are those that change, as they are. A card whose driver has none keeps them all.
func cardFeatures(l netlink.Link) (map[string]bool, error) {
	names := mergingFeatures
	if isVeth(l) {
		names = append(slices.Clone(names), checksumFeatures...)
	}
	return activeFeatures(l, names)
}

// mergingOf are the features of a link that merge received packets and are on.
func mergingOf(l netlink.Link) (map[string]bool, error) { return activeFeatures(l, mergingFeatures) }

// setGRO turns GRO on, as the kernel has it for a new card.
func setGRO(l netlink.Link) error {
	return setFeatures(l.Attrs().Name, map[string]bool{mergingFeatures[0]: true}, func(bool) bool { return true })
}

// activeFeatures are those of the named features that are on and can be changed.
func activeFeatures(l netlink.Link, names []string) (map[string]bool, error) {
	var states map[string]ethtool.FeatureState
	err := withEthtool(func(tool *ethtool.Ethtool) (err error) {
		states, err = tool.FeaturesWithState(l.Attrs().Name)
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the features of %s: %w", l.Attrs().Name, err)
	}
	features := make(map[string]bool)
	for _, name := range names {
		if s, has := states[name]; has && s.Available && !s.NeverChanged && s.Active {
			features[name] = true
		}
	}
	return features, nil
}

// setFeatures makes features what want says of them.
func setFeatures(link string, features map[string]bool, want func(was bool) bool) error {
	if len(features) == 0 {
		return nil
	}
	change := make(map[string]bool)
	for name, was := range features {
		change[name] = want(was)
	}
	err := withEthtool(func(tool *ethtool.Ethtool) error { return tool.Change(link, change) })
	if err != nil {
		return fmt.Errorf("set features of %s to %v: %w", link, change, err)
	}
	return nil
}

// isOff tells whether all of the features are off.
func isOff(link string, features map[string]bool) (bool, error) {
	if len(features) == 0 {
		return true, nil
	}
	var now map[string]bool
	err := withEthtool(func(tool *ethtool.Ethtool) (err error) {
		now, err = tool.Features(link)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read the features of %s: %w", link, err)
	}
	for name := range features {
		if now[name] {
			return false, nil
		}
	}
	return true, nil
}

func withEthtool(use func(*ethtool.Ethtool) error) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("open ethtool: %w", err)
	}
	defer tool.Close()
	return use(tool)
}

// acceptRA is the setting by which a link follows router advertisements.
func acceptRA(link string) string { return "/proc/sys/net/ipv6/conf/" + link + "/accept_ra" }

// deafTableName is the table of nftables that keeps the kernel from what a card receives. Packet sockets, and so the dataplane,
// get each frame before.
const deafTableName = "weft-uplink"

func deafTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: deafTableName}
}

// deafChain drops IPv4, ARP and IPv6. All else stays the kernel's, such as LLDP, 802.1X, and frames with VLAN tags, which have
// another type.
func deafChain(link string) tableChain {
	first := nftables.ChainPriority(-500)
	chain := tableChain{Chain: &nftables.Chain{
		Name: link, Table: deafTable(), Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress, Priority: &first, Device: link,
	}}
	for _, kind := range []uint16{unix.ETH_P_IP, unix.ETH_P_ARP, unix.ETH_P_IPV6} {
		const at = 12 // where an Ethernet frame has its type
		chain.rules = append(chain.rules, []expr.Any{
			&expr.Payload{Base: expr.PayloadBaseLLHeader, Offset: at, Len: 2, DestRegister: register1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.BigEndian.PutUint16(kind)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
		})
	}
	return chain
}

// writeDeafTable makes the table in place of the one that may be there, in one step; one that is there stays.
func writeDeafTable(link string) error {
	if is, err := isDeaf(link); is || err != nil {
		return err
	}
	c, err := tables()
	if err != nil {
		return err
	}
	table, chain := deafTable(), deafChain(link)
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	c.AddChain(chain.Chain)
	for _, rule := range chain.rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table netdev %s of nftables: %w", deafTableName, err)
	}
	return nil
}

// RemoveUplinkTable has the kernel receive again what a card receives that was the dataplane's. The table outlives the card: newer
// kernels (6.18 does) apply it to the next link of that name.
func RemoveUplinkTable() error {
	err := removeTable(deafTable())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// isDeaf tells whether the kernel is kept from what a card receives.
func isDeaf(link string) (bool, error) {
	c, err := tables()
	if err != nil {
		return false, err
	}
	is, err := deafChain(link).isThere(c)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return is, err
}
