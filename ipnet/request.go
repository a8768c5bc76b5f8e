package ipnet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// wish is one interface that a pod is to have.
type wish struct {
	name      string
	kind      string  // pod.TypeTap, TypeVeth, TypeMemif or TypeIPAM
	network   string  // "" = default
	custom    *custom // of that network, if it is one
	object    string
	mac       wire.MAC // of the pod's end
	mtu       int
	wanted    []netip.Addr   // at most one a family
	brought   []netip.Prefix // the pod's own, on a network without addresses; at most one a family
	delegated bool           // wanted are another plugin's to give
	leads     bool           // to the network's other addresses
	defaults  bool           // it is the pod's way to everything
	routes    []pod.Route    // another plugin's, by whatever gateways
	options   pod.MemifOptions
	rxQueues  int // of a memif what is asked for, else what the link is to have if that is several
	txQueues  int
	memif     *pod.Memif // of type memif: what its container has

	definition string // the NetworkAttachmentDefinition that asks for it
}

// wishes are the interfaces that an event asks for, main first, then in the order of the annotation.
func (n *Network) wishes(ev *pod.AddPod) ([]wish, error) {
	asked, err := mainAddresses(ev)
	if err != nil {
		return nil, err
	}
	var wishes []wish
	switch {
	case ev.Mode == pod.ModeIPAM:
		return []wish{{name: ev.Key.IfName, kind: pod.TypeIPAM, wanted: addressesOf(asked)}}, nil
	case ev.HasMain():
		main, err := n.mainWish(ev, asked)
		if err != nil {
			return nil, err
		}
		wishes = append(wishes, main)
	}
	requests, err := ev.Extra()
	if err != nil {
		return nil, about(ev, err)
	}
	for _, r := range requests {
		if made, err := n.madeAlready(ev, r); made || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		w, err := n.extra(ev, r)
		if err != nil {
			return nil, err
		}
		w.leads = w.leadsBeside(wishes, n.besides(ev.Key, ev.Netns))
		wishes = append(wishes, w)
	}
	if err := n.grantMemifs(ev, wishes); err != nil {
		return nil, err
	}
	if err := distinctAddresses(ev, wishes); err != nil {
		return nil, err
	}
	return wishes, distinct(ev, wishes)
}

// mainWish is the interface that the runtime asks for; that of a delegate is what another plugin's configuration says.
func (n *Network) mainWish(ev *pod.AddPod, addresses []netip.Prefix) (wish, error) {
	r := &ev.Requested
	main, err := n.extra(ev, pod.InterfaceRequest{
		Name: ev.Key.IfName, Type: r.Type, Network: cmp.Or(r.Network, pod.DefaultNetwork), Options: optionsOf(r, addresses),
	})
	if err != nil {
		return main, err
	}
	if r.AwaitsAddresses && !main.canAsk() {
		return main, pod.Errorf(pod.CodeInvalidConfig,
			"%s: interface %s: an IPAM plugin that asks by the interface needs a tap or veth on a network of type L2 without cidrs, and network %s is none; use another IPAM plugin, or none",
			ev, main.name, cmp.Or(r.Network, pod.DefaultNetwork))
	}
	main.delegated, main.routes = len(r.Delegated) > 0, r.Delegation.Routes
	main.leads, main.defaults = main.leadsBeside(nil, n.besides(ev.Key, ev.Netns)), n.isDefault(ev)
	return main, nil
}

// canAsk reports whether an IPAM plugin can ask for addresses by the interface: whoever gives them must be on the same
// link, and Weft must not give any itself.
func (w wish) canAsk() bool {
	return w.kind != pod.TypeMemif && w.custom != nil && w.custom.Network.Type == pod.L2 && len(w.custom.Network.CIDRs) == 0
}

// optionsOf are those of the main interface: what the runtime asks for goes before what a configuration does.
func optionsOf(r *pod.Requested, addresses []netip.Prefix) pod.InterfaceOptions {
	o := r.Options
	o.MAC = cmp.Or(r.MAC, o.MAC)
	if len(addresses) > 0 {
		o.IPs = addresses
	}
	return o
}

// isDefault reports whether the pod is to reach everything by its main interface. A delegate stands beside another plugin's
// interface that leads there.
func (n *Network) isDefault(ev *pod.AddPod) bool {
	return !n.config.NoDefaultRoutes && ev.Mode != pod.ModeDelegate
}

// leadsBeside reports whether an interface is to lead to its network's other addresses: the first one of the kernel's does,
// and each memif, whose program has routes of its own.
func (w wish) leadsBeside(others []wish, besides []*pod.Attachment) bool {
	return w.kind == pod.TypeMemif || !leads(besides, w.network) && !slices.ContainsFunc(others, func(o wish) bool {
		return o.network == w.network && o.kind != pod.TypeMemif
	})
}

// extra is what a pod's author asks for, checked.
func (n *Network) extra(ev *pod.AddPod, r pod.InterfaceRequest) (wish, error) {
	w := wish{
		name: r.Name, kind: cmp.Or(r.Type, n.linkTypes.Load().Pod), network: r.Network, object: objectName(ev.Key, r.Name),
		wanted: addressesOf(r.Options.IPs), options: r.Options.Memif, definition: r.Definition,
		rxQueues: r.Options.RxQueues, txQueues: r.Options.TxQueues,
	}
	if w.network == pod.DefaultNetwork {
		w.network = ""
	}
	if err := n.checkLinkType(ev, w); err != nil {
		return w, err
	}
	if isCustom(w.network) {
		w.custom = n.custom(w.network)
		switch why := (*n.refused.Load())[w.network]; {
		case n.IsClosed(w.network) && why != "":
			return w, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s cannot be used on this node: %s", ev, r.Name, r.Network, why)
		case w.custom == nil:
			return w, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: there is no network %q; there are %s",
				ev, r.Name, r.Network, strings.Join(n.networksFor(""), ", "))
		case w.custom.Network.Closed:
			return w, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s is being deleted; no pod can be added to it",
				ev, r.Name, r.Network)
		}
		if !w.custom.Network.Admits(ev.ID.Namespace) {
			return w, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s does not admit pods of namespace %q; these do: %s",
				ev, r.Name, r.Network, ev.ID.Namespace, strings.Join(n.networksFor(ev.ID.Namespace), ", "))
		}
	}
	if err := n.judgeOptions(ev, &w, r.Options); err != nil {
		return w, err
	}
	if err := n.bring(ev, &w, r.Options.IPs); err != nil {
		return w, err
	}
	most, least := n.mtuOf(w.custom), leastMTU(append(n.familiesIn(w.network), familiesOf(w.brought)...))
	if w.mtu = cmp.Or(r.Options.MTU, most); w.mtu < least || w.mtu > most {
		return w, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: MTU %d is not within %d to %d, which network %s allows",
			ev, r.Name, w.mtu, least, most, r.Network)
	}
	var err error
	w.mac, err = n.macFor(ev, w, r.Options.MAC)
	return w, err
}

// judgeOptions refuses options that do not suit the interface, or that this node would not give.
func (n *Network) judgeOptions(ev *pod.AddPod, w *wish, o pod.InterfaceOptions) error {
	if err := o.Suit(w.kind); err != nil { // of a main interface it is not known before
		return pod.Errorf(pod.CodeInvalidConfig, "%s: interface %s: %w", ev, w.name, err)
	}
	if w.kind == pod.TypeMemif {
		return n.memifPossible(ev, *w)
	}
	return n.chooseQueues(ev, w)
}

// mainAddresses are those that the main interface is to have: another plugin's, else those of the runtime, else, for the
// families that it leaves open, those of the annotation.
func mainAddresses(ev *pod.AddPod) ([]netip.Prefix, error) {
	annotated, err := pod.AddressesAsked(ev.Annotations)
	if err != nil {
		return nil, about(ev, err)
	}
	if len(annotated) > 0 && (ev.Mode == pod.ModeChained || ev.Requested.AwaitsAddresses || len(ev.Requested.Delegated) > 0) {
		return nil, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: annotation %s: the addresses of the main interface are another plugin's to give; remove the annotation", ev, pod.AnnotationIPs)
	}
	if len(ev.Requested.Delegated) > 0 {
		return inOrder(singles(ev.Requested.Delegated)), checkDelegated(ev, &ev.Requested)
	}
	wanted := slices.Clone(ev.Requested.Addresses)
	for _, a := range annotated {
		if !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return wire.FamilyOf(w.Addr()) == wire.FamilyOf(a) }) {
			wanted = append(wanted, single(a))
		}
	}
	return wanted, nil
}

// checkDelegated refuses addresses of another plugin that cannot be a pod's.
func checkDelegated(ev fmt.Stringer, r *pod.Requested) error {
	families := make(map[wire.Family]bool)
	for _, p := range r.Delegated {
		a := p.Addr()
		if !canBePods(a) {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin gave %s, which cannot be a pod's address", ev, p)
		}
		if families[wire.FamilyOf(a)] {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin gave several addresses of one family; one is possible", ev)
		}
		families[wire.FamilyOf(a)] = true
	}
	return nil
}

// madeAlready reports whether another attachment of the sandbox has made the interface: a pod's annotations are the same
// for all of them.
func (n *Network) madeAlready(ev *pod.AddPod, r pod.InterfaceRequest) (bool, error) {
	for _, a := range n.besides(ev.Key, ev.Netns) {
		for _, i := range a.Interfaces {
			if i.Name != r.Name || i.Type == pod.TypeIPAM {
				continue
			}
			if i.Name != a.Key.IfName && i.Type == cmp.Or(r.Type, n.linkTypes.Load().Pod) && cmp.Or(i.Network, pod.DefaultNetwork) == r.Network {
				return true, nil
			}
			return false, pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: annotation %s: interface %s is in the sandbox already, of attachment %s; choose another name", ev, r.By(), r.Name, a.Key)
		}
	}
	return false, nil
}

// networksFor lists the networks that pods of a namespace can name; all, if it is "".
func (n *Network) networksFor(namespace string) []string {
	names := []string{pod.DefaultNetwork, pod.StubNetwork}
	customs := n.customNetworks()
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		if of := &customs[name].Network; !of.Closed && (namespace == "" || of.Admits(namespace)) {
			names = append(names, name)
		}
	}
	return names
}

// mtuOf is the highest MTU of a network.
func (n *Network) mtuOf(c *custom) int {
	if c == nil {
		return n.config.MTU
	}
	return cmp.Or(c.Network.MTU, n.config.MTU)
}

// familiesIn are those that interfaces of a network have addresses of.
func (n *Network) familiesIn(network string) []wire.Family {
	if c := n.custom(network); c != nil {
		return familiesOf(c.Network.CIDRs)
	}
	if network == "" {
		return n.pools.Load().families()
	}
	return nil
}

// bring takes the addresses of an interface from the pod, on a network of type L2 without cidrs: each has a prefix length. An
// address that another interface of the network on this node has is refused; other nodes' are not known.
func (n *Network) bring(ev *pod.AddPod, w *wish, ips []netip.Prefix) error {
	if w.custom == nil || w.custom.addresses != nil || len(ips) == 0 {
		return nil
	}
	for _, p := range ips {
		a := p.Addr()
		switch {
		case p.IsSingleIP():
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: address %s needs a prefix length, as in \"%s/%d\": network %s has no cidrs",
				ev, w.name, a, a, map[bool]int{true: 24, false: 64}[a.Is4()], w.network)
		case !canBePods(a) || a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p)):
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %s cannot be a pod's address", ev, w.name, p)
		}
		if c := n.holderOn(w.network, a); c != nil && !older(ev, c) {
			return n.refusal(ev, *w, ipam.ErrInUse{Address: a, Holder: holderOf(c.Key, nameOn(c, w.network, a))})
		}
	}
	w.wanted, w.brought = nil, ips
	return nil
}

// nameOn is the interface of a connection that has an address of a network.
func nameOn(c *connection, network string, a netip.Addr) string {
	at := slices.IndexFunc(c.Interfaces, func(i pod.Interface) bool { return i.Network == network && addressIn(i, a) >= 0 })
	return c.Interfaces[at].Name
}

// canBePods reports whether an address can be that of one machine on a network.
func canBePods(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast()
}

// lastOf is the highest address of a prefix of IPv4: its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	last := p.Masked().Addr().As4()
	for i := range last {
		if free := 8*(i+1) - p.Bits(); free > 0 {
			last[i] |= byte(1<<min(free, 8) - 1)
		}
	}
	return netip.AddrFrom4(last)
}

func addressesOf(prefixes []netip.Prefix) []netip.Addr {
	var addresses []netip.Addr
	for _, p := range prefixes {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// inOrder lists addresses, IPv4 first.
func inOrder(prefixes []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(prefixes), func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
}

// distinctAddresses refuses two interfaces of a pod with one address of a network.
func distinctAddresses(ev *pod.AddPod, wishes []wish) error {
	seen := make(map[string]string)
	for _, w := range wishes {
		for _, p := range w.brought {
			key := w.network + " " + p.Addr().String()
			if other, taken := seen[key]; taken {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interfaces %s and %s of network %s have the same address %s", ev, other, w.name, w.network, p.Addr())
			}
			seen[key] = w.name
		}
	}
	return nil
}
