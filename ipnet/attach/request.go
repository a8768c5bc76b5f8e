package attach

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// spec is the resolved request for one interface of a pod, before its addresses are allocated.
type spec struct {
	name      string
	kind      string           // pod.TypeTap, TypeVeth, TypeMemif or TypeIPAM
	network   string           // "" = default
	custom    *networks.Custom // of that network, if it is one
	object    string
	mac       wire.MAC // of the pod's end
	mtu       int
	wanted    []netip.Addr   // at most one a family
	brought   []netip.Prefix // requested by the pod on a network without addresses; at most one a family
	delegated bool           // another plugin allocated wanted
	leads     bool           // it has the routes to the other addresses of the network
	defaults  bool           // it has the default routes
	routes    []pod.Route    // of another plugin
	options   pod.MemifOptions
	rxQueues  int // of a memif as requested, else as recorded
	txQueues  int
	memif     *pod.Memif // of type memif

	definition    string // name of its NetworkAttachmentDefinition
	allocation    string // id of the allocation of its claim; "": no claim requests it
	optionsSource string // what has its options, for errors
}

// request resolves the interfaces of one AddPod event.
type request struct {
	*Pods
	ev *pod.AddPod
	t  *eventloop.Txn
}

// specs returns the interfaces that the event asks for, the main interface first, then in the order of the annotation.
func (rq *request) specs() ([]spec, error) {
	asked, err := mainAddresses(rq.ev)
	if err != nil {
		return nil, err
	}
	var specs []spec
	switch {
	case rq.ev.Mode == pod.ModeIPAM:
		return []spec{{name: rq.ev.Key.IfName, kind: pod.TypeIPAM, wanted: addressesOf(asked)}}, nil
	case rq.ev.HasMain():
		main, err := rq.mainSpec(asked)
		if err != nil {
			return nil, err
		}
		specs = append(specs, main)
	}
	requests, err := rq.ev.Extra()
	if err != nil {
		return nil, rq.ev.Failed(err)
	}
	for _, r := range requests {
		if made, err := rq.madeAlready(r); made || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		s, err := rq.extra(r)
		if err != nil {
			return nil, err
		}
		s.leads = s.leadsBeside(specs, rq.siblings(rq.ev.Key, rq.ev.Netns))
		specs = append(specs, s)
	}
	if err := rq.grantMemifs(specs); err != nil {
		return nil, err
	}
	if err := distinctRoles(rq.ev, specs); err != nil {
		return nil, err
	}
	if err := distinctAddresses(rq.ev, specs); err != nil {
		return nil, err
	}
	return specs, distinct(rq.ev, specs)
}

// mainSpec returns the interface that the runtime requests; for a delegate the other plugin's configuration describes it.
func (rq *request) mainSpec(addresses []netip.Prefix) (spec, error) {
	r := &rq.ev.Requested
	main, err := rq.extra(pod.InterfaceRequest{
		Name: rq.ev.Key.IfName, Type: r.Type, Network: cmp.Or(r.Network, pod.DefaultNetwork), Options: optionsOf(r, addresses),
	})
	if err != nil {
		return main, err
	}
	if r.AwaitsAddresses && !main.canAsk() {
		return main, pod.Errorf(pod.CodeInvalidConfig,
			"%s: interface %s: an IPAM plugin that asks by the interface needs a tap or veth on a network of type L2 without cidrs, and network %s is none; use another IPAM plugin, or none",
			rq.ev, main.name, cmp.Or(r.Network, pod.DefaultNetwork))
	}
	main.delegated, main.routes = len(r.Delegated) > 0, r.Delegation.Routes
	main.leads, main.defaults = main.leadsBeside(nil, rq.siblings(rq.ev.Key, rq.ev.Netns)), rq.isDefault()
	return main, nil
}

// canAsk reports whether an IPAM plugin can request addresses through the interface: the server must be on the same link, and Weft
// must not allocate addresses there.
func (s spec) canAsk() bool {
	return s.kind != pod.TypeMemif && s.custom != nil && s.custom.Network.Type == pod.L2 && len(s.custom.Network.CIDRs) == 0
}

// optionsOf returns the options of the main interface. The request of the runtime precedes the configuration.
func optionsOf(r *pod.Requested, addresses []netip.Prefix) pod.InterfaceOptions {
	o := r.Options
	o.MAC = cmp.Or(r.MAC, o.MAC)
	if len(addresses) > 0 {
		o.IPs = addresses
	}
	return o
}

// isDefault reports whether the main interface has the default routes. The interface of a delegate has none, because another plugin's
// interface has them.
func (rq *request) isDefault() bool {
	return !rq.config.NoDefaultRoutes && rq.ev.Mode != pod.ModeDelegate
}

// leadsBeside reports whether an interface gets the routes to its network: the first kernel interface does, and each memif, whose program
// has routes of its own.
func (s spec) leadsBeside(others []spec, siblings []*pod.Attachment) bool {
	return s.kind == pod.TypeMemif || !hasNetworkRoute(siblings, s.network) && !slices.ContainsFunc(others, func(o spec) bool {
		return o.network == s.network && o.kind != pod.TypeMemif
	})
}

// extra validates the request for an interface.
func (rq *request) extra(r pod.InterfaceRequest) (spec, error) {
	s := spec{
		name: r.Name, kind: cmp.Or(r.Type, rq.host.LinkTypes().Pod), network: r.Network, object: desired.ObjectName(rq.ev.Key, r.Name),
		wanted: addressesOf(r.Options.IPs), options: r.Options.Memif, definition: r.Definition,
		allocation: r.Allocation, optionsSource: r.OptionsSource(),
		rxQueues: r.Options.RxQueues, txQueues: r.Options.TxQueues,
	}
	if s.network == pod.DefaultNetwork {
		s.network = ""
	}
	if err := rq.checkLinkType(s); err != nil {
		return s, err
	}
	if desired.IsCustom(s.network) {
		s.custom = rq.networks.Custom(s.network)
		switch why := rq.networks.Refused(s.network); {
		case rq.networks.IsClosed(s.network) && why != "":
			return s, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s cannot be used on this node: %s", rq.ev, r.Name, r.Network, why)
		case s.custom == nil:
			return s, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: there is no network %q; there are %s",
				rq.ev, r.Name, r.Network, strings.Join(rq.networks.NetworksFor(""), ", "))
		case s.custom.Network.Closed:
			return s, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s is being deleted; no pod can be added to it",
				rq.ev, r.Name, r.Network)
		}
		if !s.custom.Network.Admits(rq.ev.ID.Namespace) {
			return s, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s does not admit pods of namespace %q; these do: %s",
				rq.ev, r.Name, r.Network, rq.ev.ID.Namespace, strings.Join(rq.networks.NetworksFor(rq.ev.ID.Namespace), ", "))
		}
	}
	if err := rq.suitsNetwork(s, r); err != nil {
		return s, err
	}
	if err := rq.validateOptions(&s, r.Options); err != nil {
		return s, err
	}
	if s.custom != nil && s.custom.Network.Direct {
		if err := rq.becomeDirect(&s); err != nil {
			return s, err
		}
	}
	if err := rq.bring(&s, r.Options.IPs); err != nil {
		return s, err
	}
	most, least := rq.networks.MTUOf(s.custom), desired.LeastMTU(append(rq.networks.FamiliesIn(s.network), desired.FamiliesOf(s.brought)...))
	if s.mtu = cmp.Or(r.Options.MTU, most); s.mtu < least || s.mtu > most {
		return s, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: MTU %d is not within %d to %d, which network %s allows",
			rq.ev, r.Name, s.mtu, least, most, r.Network)
	}
	if s.kind == pod.TypeMemif {
		if err := s.options.Holds(s.mtu); err != nil {
			return s, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %w", rq.ev, r.Name, err)
		}
	}
	var err error
	s.mac, err = rq.macFor(s, r.Options.MAC)
	return s, err
}

// suitsNetwork rejects an interface that its network cannot have on any node.
func (rq *request) suitsNetwork(s spec, r pod.InterfaceRequest) error {
	network := pod.Network{Name: cmp.Or(s.network, pod.DefaultNetwork)}
	if s.custom != nil {
		network = s.custom.Network
	}
	r.Type = s.kind
	if err := network.Suits(r); err != nil {
		return rq.ev.Failed(err)
	}
	return nil
}

// validateOptions rejects options that do not suit the interface, or that this node does not allow.
func (rq *request) validateOptions(s *spec, o pod.InterfaceOptions) error {
	if err := o.ValidateFor(s.kind); err != nil { // the type of a main interface was not known before
		return pod.Errorf(pod.CodeInvalidConfig, "%s: interface %s: %w", rq.ev, s.name, err)
	}
	if s.kind == pod.TypeMemif {
		return rq.memifPossible(*s)
	}
	return rq.chooseQueues(s)
}

// mainAddresses returns the addresses of the main interface: those of another plugin, else those of the runtime and, for other families,
// of the annotation.
func mainAddresses(ev *pod.AddPod) ([]netip.Prefix, error) {
	annotated, err := pod.ParseAddresses(ev.Annotations)
	if err != nil {
		return nil, ev.Failed(err)
	}
	if len(annotated) > 0 && (ev.Mode == pod.ModeChained || ev.Requested.AwaitsAddresses || len(ev.Requested.Delegated) > 0) {
		return nil, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: annotation %s: the addresses of the main interface are another plugin's to give; remove the annotation", ev, pod.AnnotationIPs)
	}
	if len(ev.Requested.Delegated) > 0 {
		return inOrder(desired.Singles(ev.Requested.Delegated)), checkDelegated(ev, &ev.Requested)
	}
	wanted := slices.Clone(ev.Requested.Addresses)
	for _, a := range annotated {
		if !slices.ContainsFunc(wanted, func(s netip.Prefix) bool { return wire.FamilyOf(s.Addr()) == wire.FamilyOf(a) }) {
			wanted = append(wanted, desired.Single(a))
		}
	}
	return wanted, nil
}

// checkDelegated rejects addresses of another plugin that are invalid for a pod.
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

// madeAlready reports whether another attachment of the sandbox has the interface: all attachments of a pod see its annotations.
func (rq *request) madeAlready(r pod.InterfaceRequest) (bool, error) {
	for _, a := range rq.siblings(rq.ev.Key, rq.ev.Netns) {
		for _, i := range a.Interfaces {
			if i.Name != r.Name || i.Type == pod.TypeIPAM {
				continue
			}
			if i.Name != a.Key.IfName && i.Type == cmp.Or(r.Type, rq.host.LinkTypes().Pod) && cmp.Or(i.Network, pod.DefaultNetwork) == r.Network {
				return true, nil
			}
			return false, pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: %s: interface %s is in the sandbox already, of attachment %s; choose another name", rq.ev, r.Source(), r.Name, a.Key)
		}
	}
	return false, nil
}

// bring accepts the addresses that a pod requests with prefix lengths on a network of type L2 without cidrs. It rejects an address of
// another interface on this node; interfaces of other nodes are unknown.
func (rq *request) bring(s *spec, ips []netip.Prefix) error {
	if s.custom == nil || len(s.custom.Network.CIDRs) > 0 || len(ips) == 0 {
		return nil
	}
	for _, p := range ips {
		a := p.Addr()
		switch {
		case p.IsSingleIP():
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: address %s needs a prefix length, as in \"%s/%d\": network %s has no cidrs",
				rq.ev, s.name, a, a, map[bool]int{true: 24, false: 64}[a.Is4()], s.network)
		case !canBePods(a) || namesSubnet(p):
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %s cannot be a pod's address", rq.ev, s.name, p)
		}
		if holder := rq.holderBeside(s.network, a, rq.ev.ID, rq.ev.Key); holder != "" {
			return rq.refusal(*s, ipam.ErrInUse{Address: a, Holder: holder})
		}
	}
	s.wanted, s.brought = nil, ips
	return nil
}

// holderBeside returns the holder of an address on a network: an interface of this node, except those of older sandboxes of the pod id, whose
// address the sandbox of key may have; "" if there is none.
func (ps *Pods) holderBeside(network string, a netip.Addr, id pod.ID, key pod.Key) string {
	for _, c := range ps.wired {
		if older(id, key, c) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network == network && addressIn(i, a) >= 0 {
				return desired.HolderOf(c.Key, i.Name)
			}
		}
	}
	return ""
}

// canBePods reports whether an address can be the address of a pod.
func canBePods(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast()
}

// namesSubnet reports whether an address with its prefix length is the address of the subnet or its broadcast address.
func namesSubnet(p netip.Prefix) bool {
	a := p.Addr()
	return a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p))
}

// lastOf returns the broadcast address of an IPv4 prefix.
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

// distinctAddresses rejects two interfaces of a pod with the same address on a network.
func distinctAddresses(ev *pod.AddPod, specs []spec) error {
	seen := make(map[string]string)
	for _, s := range specs {
		for _, p := range s.brought {
			key := s.network + " " + p.Addr().String()
			if other, taken := seen[key]; taken {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interfaces %s and %s of network %s have the same address %s", ev, other, s.name, s.network, p.Addr())
			}
			seen[key] = s.name
		}
	}
	return nil
}

// checkLinkType rejects an interface that the dataplane of this node cannot make.
func (rq *request) checkLinkType(s spec) error {
	if why := rq.host.LinkTypes().NoTap; s.kind == pod.TypeTap && why != "" {
		return pod.Errorf(pod.CodeRefused, "%s: interface %s: the dataplane of this node cannot create taps: %s; request a veth instead", rq.ev, s.name, why)
	}
	return nil
}

// option is a requested number with the maximum of the node.
type option struct {
	name        string
	asked, most int
}

// allowed rejects the first option above its maximum.
func allowed(ev *pod.AddPod, s spec, options ...option) error {
	for _, o := range options {
		if o.asked > o.most {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: %s: interface %s: %s %d is more than this node allows, which is %d",
				ev, s.optionsSource, s.name, o.name, o.asked, o.most)
		}
	}
	return nil
}

// chooseQueues sets the queues of the pod's end of a tap or veth. A tap has queue pairs.
func (rq *request) chooseQueues(s *spec) error {
	rx, tx, most := s.rxQueues, s.txQueues, rq.config.MaxPodQueues
	if err := allowed(rq.ev, *s, option{"rxQueues", rx, most}, option{"txQueues", tx, most}); err != nil {
		return err
	}
	if s.kind == pod.TypeTap {
		rx, tx = cmp.Or(rx, tx), cmp.Or(tx, rx)
	}
	s.rxQueues, s.txQueues = several(cmp.Or(rx, rq.config.PodQueues)), several(cmp.Or(tx, rq.config.PodQueues))
	return nil
}

// several returns a number of queues as in records, where 0 is the default of one queue.
func several(queues int) int {
	if queues == 1 {
		return 0
	}
	return queues
}

// macFor returns the MAC of the pod's end: the requested one, else one that is derived from the name of the object.
func (rq *request) macFor(s spec, asked string) (wire.MAC, error) {
	if asked == "" {
		return desired.MACOf(s.object, desired.LinuxEnd), nil
	}
	code, what := pod.CodeInvalidConfig, ""
	if s.name != rq.ev.Key.IfName {
		code, what = pod.CodeInvalidAnnotation, "interface "+s.name+": "
	}
	mac, err := wire.ParseMAC(asked)
	if err != nil {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC asked for: %w", rq.ev, what, err)
	}
	if !mac.IsUnicast() {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC %s asked for is not one of a single interface: ask for a unicast MAC", rq.ev, what, asked)
	}
	if rq.isGateways(mac) || mac == desired.MACOf(s.object, desired.DataplaneEnd) || mac == desired.MACOf(s.object, desired.HostEnd) {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is the gateway's or the node's; ask for another one, or for none",
			rq.ev, what, mac)
	}
	if c := rq.holderOfMAC(mac.String()); c != nil && c.Key != rq.ev.Key {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is held by %s (%s); ask for another one, or for none",
			rq.ev, what, mac, c.Name(), c.Key)
	}
	return mac, nil
}

// distinct rejects two interfaces of a pod with the same MAC.
func distinct(ev *pod.AddPod, specs []spec) error {
	seen := make(map[wire.MAC]string)
	for _, s := range specs {
		if other, taken := seen[s.mac]; taken {
			return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of interface %s; ask for another one, or for none",
				ev, s.name, s.mac, other)
		}
		seen[s.mac] = s.name
		for _, o := range specs {
			if s.mac == desired.MACOf(o.object, desired.DataplaneEnd) || s.mac == desired.MACOf(o.object, desired.HostEnd) {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of the gateway of interface %s; ask for another one, or for none",
					ev, s.name, s.mac, o.name)
			}
		}
	}
	return nil
}

func (ps *Pods) holderOfMAC(mac string) *connection {
	for _, c := range ps.wired {
		for _, i := range c.Interfaces {
			if i.MAC == mac {
				return c
			}
		}
	}
	return nil
}

// isGateways reports whether an interface of the dataplane or the node has the MAC.
func (ps *Pods) isGateways(mac wire.MAC) bool {
	objects := []string{desired.GatewayObject, desired.HostObject, desired.TunnelObject}
	for _, c := range ps.networks.Customs() {
		objects = append(objects, c.Loopback)
	}
	for _, c := range ps.wired {
		for _, i := range c.Interfaces {
			objects = append(objects, i.Object)
		}
	}
	for _, object := range objects {
		if mac == desired.MACOf(object, desired.DataplaneEnd) || mac == desired.MACOf(object, desired.HostEnd) {
			return true
		}
	}
	return mac == desired.MACOf(desired.HostObject, desired.LinuxEnd) || mac == desired.MACOf(desired.TunnelObject, desired.LinuxEnd)
}
