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

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// ReadCard reads the addresses, routes and settings of a network card in the caller's namespace, which an uplink moves
// and restores. It returns an error for a card with a configuration that cannot be moved.
func ReadCard(link string) (card wire.Card, err error) {
	err = withHandle(func(h *handle) error {
		l, err := h.link(link)
		if err != nil {
			return err
		}
		a := l.Attrs()
		switch {
		case a.EncapType != "ether":
			return fmt.Errorf("link %s has type %s, not Ethernet", link, a.EncapType)
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

// settable are the flags of an address that can be set.
const settable = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MCAUTOJOIN

// cardAddresses lists the addresses of a card that move, in the order in which they have to be added. Link-local
// addresses stay. The kernel makes temporary addresses itself.
func cardAddresses(h *handle, l netlink.Link) (addresses []wire.CardAddress, err error) {
	var list []netlink.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, listErr := h.AddrList(l, family)
		list = append(list, found...)
		err = errors.Join(err, listErr)
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
			return nil, fmt.Errorf("address %s of %s has a peer and cannot be moved", p, l.Attrs().Name)
		}
		addresses = append(addresses, wire.CardAddress{
			Prefix: p, Broadcast: addrOf(a.Broadcast), Label: a.Label, Scope: a.Scope, Flags: a.Flags & settable,
			Valid: lifetime(a.ValidLft), Preferred: lifetime(a.PreferedLft),
		})
	}
	// The kernel appends a new IPv4 address and prepends a new IPv6 address.
	at := slices.IndexFunc(addresses, func(a wire.CardAddress) bool { return a.Prefix.Addr().Is6() })
	if at >= 0 {
		slices.Reverse(addresses[at:])
	}
	return addresses, nil
}

// lifetime returns 0 for an infinite lifetime.
func lifetime(seconds int) uint32 {
	if seconds <= 0 || seconds == int(^uint32(0)) {
		return 0
	}
	return uint32(seconds)
}

// kernelCardAddress returns the kernel's form of an address of cardAddresses. It disables duplicate address detection:
// the node never stopped using the address.
func kernelCardAddress(a wire.CardAddress) *netlink.Addr {
	k := &netlink.Addr{IPNet: ipNet(a.Prefix), Label: a.Label, Scope: a.Scope, Flags: a.Flags}
	if a.Prefix.Addr().Is6() {
		k.Flags |= unix.IFA_F_NODAD
	}
	k.Broadcast = netip.IPv4Unspecified().AsSlice() // no broadcast address; the library adds one otherwise
	if a.Broadcast.IsValid() {
		k.Broadcast = a.Broadcast.AsSlice()
	}
	if a.Valid != 0 || a.Preferred != 0 {
		k.ValidLft = int(^uint32(0))
		k.PreferedLft = int(^uint32(0))
		if a.Valid != 0 {
			k.ValidLft = int(a.Valid)
		}
		if a.Preferred != 0 {
			k.PreferedLft = int(a.Preferred)
		}
	}
	return k
}

// cardRoutes lists the routes of a card that move. It returns an error for a route that cannot be moved.
func cardRoutes(h *handle, l netlink.Link, card wire.Card) ([]wire.CardRoute, error) {
	list, err := routesByCard(h, l)
	if err != nil {
		return nil, err
	}
	var routes []wire.CardRoute
	for _, r := range list {
		to := destinationOf(r)
		name := l.Attrs().Name
		switch {
		case r.Table != unix.RT_TABLE_MAIN:
			return nil, fmt.Errorf("route to %s through %s is in table %d: only routes of the main table can be moved",
				to, name, r.Table)
		case len(r.MultiPath) > 0 || r.Via != nil || r.Encap != nil || r.Type != unix.RTN_UNICAST:
			return nil, fmt.Errorf(
				"route to %s through %s cannot be moved: it has several paths, a gateway of the other family, an encapsulation or a type",
				to, name)
		}
		if !card.Address(netaddr.FamilyOf(to.Addr())).IsValid() {
			continue // the family stays with the kernel
		}
		routes = append(routes, wire.CardRoute{
			Destination: to,
			Gateway:     addrOf(r.Gw),
			Source:      addrOf(r.Src),
			Metric:      r.Priority,
			Protocol:    int(r.Protocol),
			Scope:       int(r.Scope),
			Flags:       r.Flags & unix.RTNH_F_ONLINK, MTU: r.MTU, AdvMSS: r.AdvMSS,
		})
	}
	return routes, nil
}

// routesByCard lists the routes through a card of all tables but the local one, without those that the kernel makes for
// link-local and multicast addresses.
func routesByCard(h *handle, l netlink.Link) ([]netlink.Route, error) {
	var found []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			isPath := func(n *netlink.NexthopInfo) bool { return n.LinkIndex == l.Attrs().Index }
			byCard := r.LinkIndex == l.Attrs().Index || slices.ContainsFunc(r.MultiPath, isPath)
			if byCard && r.Table != unix.RT_TABLE_LOCAL && !isOfLinkLocal(r) && r.Flags&unix.RTM_F_CLONED == 0 {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

func isOfLinkLocal(r netlink.Route) bool {
	to := destinationOf(r).Addr()
	return to.Is6() && (to.IsLinkLocalUnicast() || to.IsMulticast()) && r.Protocol == unix.RTPROT_KERNEL
}

// Features that are off while the dataplane owns a card. Received packets must not be merged to more than the MTU: the
// dataplane forwards frames unchanged. A veth passes on packets without a checksum.
var (
	mergingFeatures  = []string{"rx-gro", "rx-lro", "rx-gro-hw"}
	checksumFeatures = []string{"tx-checksum-ip-generic"}
)

// cardFeatures returns the features that are on and have to be off. It returns none if the driver has no features.
func cardFeatures(l netlink.Link) (map[string]bool, error) {
	names := mergingFeatures
	if isVeth(l) {
		names = append(slices.Clone(names), checksumFeatures...)
	}
	return activeFeatures(l, names)
}

// mergingOf returns the active features of a link that merge received packets.
func mergingOf(l netlink.Link) (map[string]bool, error) { return activeFeatures(l, mergingFeatures) }

// setGRO turns GRO on, the kernel's default.
func setGRO(l netlink.Link) error {
	return setFeatures(l.Attrs().Name, map[string]bool{mergingFeatures[0]: true}, func(bool) bool { return true })
}

// activeFeatures returns the named features that are on and can be changed.
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
		return nil, fmt.Errorf("read features of %s: %w", l.Attrs().Name, err)
	}
	features := make(map[string]bool)
	for _, name := range names {
		if s, has := states[name]; has && s.Available && !s.NeverChanged && s.Active {
			features[name] = true
		}
	}
	return features, nil
}

// setFeatures sets each feature to the state that want returns for its former state.
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

// isOff reports whether all features are off.
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
		return false, fmt.Errorf("read features of %s: %w", link, err)
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

// acceptRA returns the file of the setting that makes a link accept router advertisements.
func acceptRA(link string) string { return "/proc/sys/net/ipv6/conf/" + link + "/accept_ra" }

// dropTableName is the nftables table that drops packets that a card receives, before the kernel processes them. Packet
// sockets, such as the dataplane's, get each frame first.
const dropTableName = "weft-uplink"

func dropTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: dropTableName}
}

// dropChain drops IPv4, ARP and IPv6. The kernel still processes other frames, such as LLDP, 802.1X and frames with
// VLAN tags.
func dropChain(link string) nftChain {
	first := nftables.ChainPriority(-500)
	chain := nftChain{Chain: &nftables.Chain{
		Name:     link,
		Table:    dropTable(),
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookIngress,
		Priority: &first,
		Device:   link,
	}}
	for _, kind := range []uint16{unix.ETH_P_IP, unix.ETH_P_ARP, unix.ETH_P_IPV6} {
		const etherTypeOffset = 12
		chain.rules = append(chain.rules, []expr.Any{
			&expr.Payload{Base: expr.PayloadBaseLLHeader, Offset: etherTypeOffset, Len: 2, DestRegister: register1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.BigEndian.PutUint16(kind)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
		})
	}
	return chain
}

// writeDropTable creates the table in one transaction unless it exists with its rules.
func writeDropTable(link string) error {
	if has, err := hasDropTable(link); has || err != nil {
		return err
	}
	return nftTable{Table: dropTable(), chains: []nftChain{dropChain(link)}}.replace()
}

// RemoveUplinkTable lets the kernel process the packets of a card that the dataplane owned. The table outlives the
// card: newer kernels (6.18 does) apply it to the next link of that name.
func RemoveUplinkTable() error { return removeTable(dropTable()) }

// hasDropTable reports whether the table with the rules for a card exists.
func hasDropTable(link string) (bool, error) {
	c, err := nftConn()
	if err != nil {
		return false, err
	}
	exists, err := dropChain(link).exists(c)
	if isNoTable(err) {
		return false, nil
	}
	return exists, err
}
