package attach

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// resolver resolves the request of one pod into specs. It only reads: the configuration, the networks and the
// connected attachments.
type resolver struct {
	request     *pod.Request
	config      Config
	networks    *networks.Networks
	linkTypes   mesh.LinkTypes
	connections connections
	mesh        *mesh.Mesh
	externals   *mesh.Externals
	siblings    []*pod.Attachment // the other attachments of the sandbox
}

// specs returns the interfaces that the event requests, the main interface first, then in the order of the annotation.
func (r *resolver) specs() ([]spec, error) {
	addresses, err := mainAddresses(r.request)
	if err != nil {
		return nil, err
	}
	if r.request.Mode == pod.ModeIPAM {
		return []spec{{
			name:       r.request.Key.IfName,
			linkChoice: linkChoice{kind: pod.TypeIPAM},
			network:    networkNamed(pod.DefaultNetwork, r.networks),
			addresses:  addressChoice{wanted: addressesOf(addresses)},
		}}, nil
	}
	var specs []spec
	if r.request.HasMain() {
		main, err := r.main(addresses)
		if err != nil {
			return nil, err
		}
		specs = append(specs, main)
	}
	requests, err := r.request.Extra()
	if err != nil {
		return nil, r.request.Failed(err)
	}
	return r.add(specs, requests)
}

// add adds the interfaces of requests to specs.
func (r *resolver) add(specs []spec, requests []pod.InterfaceRequest) ([]spec, error) {
	for _, q := range requests {
		exists, err := r.exists(q)
		if err != nil {
			return nil, err
		}
		if exists {
			continue
		}
		s, err := r.spec(q)
		if err != nil {
			return nil, err
		}
		s.routes.toNetwork = r.getsNetworkRoute(s, specs)
		specs = append(specs, s)
	}
	if err := assignDevices(r.request, specs, r.siblings); err != nil {
		return nil, err
	}
	if err := distinctRoles(r.request, specs); err != nil {
		return nil, err
	}
	if err := atMostOneDNS(r.request, specs); err != nil {
		return nil, err
	}
	if err := distinctAddresses(r.request, specs); err != nil {
		return nil, err
	}
	if err := distinctRouted(r.request, specs); err != nil {
		return nil, err
	}
	return specs, distinctMACs(r.request, specs)
}

// main returns the interface that the runtime requests; for a delegate the other plugin's configuration describes it.
func (r *resolver) main(addresses []netip.Prefix) (spec, error) {
	requested := &r.request.Requested
	network := cmp.Or(requested.Network, pod.DefaultNetwork)
	options := optionsOf(requested, addresses)
	var err error
	if options.Limits, err = r.request.MainLimits(); err != nil {
		return spec{}, err
	}
	s, err := r.spec(pod.InterfaceRequest{
		Name:    r.request.Key.IfName,
		Type:    requested.Type,
		Network: network,
		Options: options,
	})
	if err != nil {
		return s, err
	}
	// The server must be on the same link, and Weft must not allocate addresses there.
	servesDHCP := s.kind != pod.TypeMemif && s.network.isBridged() && s.network.hasNoCIDRs()
	if requested.AwaitsAddresses && !servesDHCP {
		return s, pod.Errorf(pod.CodeInvalidConfig,
			"%s: interface %s: this IPAM plugin uses the pod's interface, and needs a tap or veth on a network of type L2 "+
				"without cidrs; network %s is not such a network: use another IPAM plugin, or remove ipam",
			r.request, s.name, network)
	}
	s.addresses.delegated = len(requested.Delegated) > 0
	s.routes.toNetwork = r.getsNetworkRoute(s, nil)
	// the interface of a delegate has no default route, because another plugin's interface has it
	s.routes.isDefault = !r.config.NoDefaultRoutes && r.request.Mode != pod.ModeDelegate
	s.routes.foreign = requested.Delegation.Routes
	return s, nil
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

// getsNetworkRoute reports whether an interface gets the routes to its network: the first kernel interface does, and
// each memif, because its program has its own routes.
func (r *resolver) getsNetworkRoute(s spec, before []spec) bool {
	if s.kind == pod.TypeMemif {
		return true
	}
	hasSpec := slices.ContainsFunc(before, func(o spec) bool {
		return o.network.name == s.network.name && o.kind != pod.TypeMemif
	})
	return !hasSpec && !hasNetworkRoute(r.siblings, s.network.name)
}

// exists reports whether another attachment of the sandbox has the interface: all attachments of a pod see its
// annotations.
func (r *resolver) exists(q pod.InterfaceRequest) (bool, error) {
	for _, a := range r.siblings {
		for _, i := range a.Interfaces {
			if i.Name != q.Name || i.Type == pod.TypeIPAM {
				continue
			}
			if i.Name != a.Key.IfName && i.Type == cmp.Or(q.Type, r.linkTypes.Pod) &&
				cmp.Or(i.Network, pod.DefaultNetwork) == q.Network {
				return true, nil
			}
			return false, pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: %s: interface %s is in the sandbox already, of attachment %s; choose another name", r.request,
				q.Source(), q.Name, a.Key)
		}
	}
	return false, nil
}

// spec resolves the request for one interface. The network comes first, because everything else must suit it.
func (r *resolver) spec(q pod.InterfaceRequest) (spec, error) {
	s := spec{
		name: q.Name,
		linkChoice: linkChoice{
			kind:   cmp.Or(q.Type, r.linkTypes.Pod),
			object: desired.ObjectName(r.request.Key, q.Name),
		},
		memif:  memifChoice{options: q.Options.Memif, claimed: q.Allocation},
		source: source{definition: q.Definition, options: q.OptionsSource()},
	}
	if err := r.checkLinkType(s); err != nil {
		return s, err
	}
	var err error
	if s.network, err = r.network(q); err != nil {
		return s, err
	}
	if err := r.checkSuitsNetwork(s, q); err != nil {
		return s, err
	}
	if err := r.checkOptions(s, q.Options); err != nil {
		return s, err
	}
	s.routes = routesOf(q.Options)
	if q.Options.DNS {
		s.dns = s.network.custom.Network.DNS // which it has: checkSuitsNetwork
	}
	s.queues = r.queues(s.kind, q.Options)
	if s.memif.options.Role, err = r.role(s); err != nil {
		return s, err
	}
	if s.addresses, err = r.addresses(s, q.Options.AddressRequest); err != nil {
		return s, err
	}
	s.vlans = q.Options.VLANs
	if s.moving, err = r.moving(s, q.Options.Moving); err != nil {
		return s, err
	}
	if s.routed, err = r.routed(s, q.Options.RoutedPrefixes); err != nil {
		return s, err
	}
	if s.mtu, err = r.mtu(s, q); err != nil {
		return s, err
	}
	s.limits = q.Options.Limits
	if err := s.limits.Holds(s.mtu); err != nil {
		return s, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %w", r.request, s.name, err)
	}
	s.mac, err = r.mac(s, macOf(q.Options.MAC, s.addresses.claim))
	return s, err
}

// routesOf returns the routes that options request.
func routesOf(o pod.InterfaceOptions) routeChoice {
	return routeChoice{
		requested:    o.Routes,
		wantsDefault: o.IsDefault(),
		gateway:      o.Gateway,
		forwarding:   o.IPForwarding,
	}
}

// checkLinkType rejects an interface that the dataplane of this node cannot make.
func (r *resolver) checkLinkType(s spec) error {
	if why := r.linkTypes.NoTap; s.kind == pod.TypeTap && why != "" {
		return pod.Errorf(pod.CodeRefused,
			"%s: interface %s: the dataplane of this node cannot create taps: %s; request a veth instead", r.request,
			s.name, why)
	}
	return nil
}

// network returns the requested network, which must exist and admit the pod.
func (r *resolver) network(q pod.InterfaceRequest) (network, error) {
	n := networkNamed(q.Network, r.networks)
	if !desired.IsCustom(n.name) {
		return n, nil
	}
	namespace := r.request.ID.Namespace
	switch why := r.networks.Refused(n.name); {
	case r.networks.IsClosed(n.name) && why != "":
		return n, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: network %s cannot be used on this node: %s",
			r.request, q.Name, q.Network, why)
	case n.custom == nil:
		return n, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: unknown network %q; known networks: %s",
			r.request, q.Name, q.Network, strings.Join(r.networks.NetworksFor(""), ", "))
	case n.custom.Network.Closed:
		return n, pod.Errorf(pod.CodeUnknownNetwork,
			"%s: interface %s: network %s is being deleted; no pod can be added to it", r.request, q.Name, q.Network)
	case !n.custom.Network.Admits(namespace):
		return n, pod.Errorf(pod.CodeUnknownNetwork,
			"%s: interface %s: network %s does not admit pods of namespace %q; these do: %s",
			r.request, q.Name, q.Network, namespace, strings.Join(r.networks.NetworksFor(namespace), ", "))
	}
	return n, nil
}

// checkSuitsNetwork rejects an interface that its network cannot have on any node.
func (r *resolver) checkSuitsNetwork(s spec, q pod.InterfaceRequest) error {
	network := pod.Network{Name: cmp.Or(s.network.name, pod.DefaultNetwork)}
	if s.network.custom != nil {
		network = s.network.custom.Network
	}
	q.Type = s.kind
	if err := network.Suits(q); err != nil {
		return r.request.Failed(err)
	}
	return nil
}

// checkOptions rejects options that do not suit the interface, or that this node does not allow.
func (r *resolver) checkOptions(s spec, o pod.InterfaceOptions) error {
	if err := o.ValidateFor(s.kind); err != nil { // the type of a main interface was not known before
		return pod.Errorf(pod.CodeInvalidConfig, "%s: interface %s: %w", r.request, s.name, err)
	}
	if s.kind != pod.TypeMemif {
		most := r.config.MaxPodQueues
		return r.checkLimits(s, limit{"rxQueues", o.RxQueues, most}, limit{"txQueues", o.TxQueues, most})
	}
	if r.config.Secret == nil {
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: interface %s: this node has no memifs: devices.memif.count in its configuration is 0", r.request,
			s.name)
	}
	most := r.config.Memif
	return r.checkLimits(s,
		limit{"ringSize", o.Memif.RingSize, most.RingSize},
		limit{"bufferSize", o.Memif.BufferSize, most.BufferSize},
		limit{"rxQueues", o.RxQueues, most.Queues},
		limit{"txQueues", o.TxQueues, most.Queues},
	)
}

// limit is a requested number with the maximum of the node.
type limit struct {
	option      string
	asked, most int
}

// checkLimits rejects the first number above its maximum.
func (r *resolver) checkLimits(s spec, limits ...limit) error {
	for _, l := range limits {
		if l.asked > l.most {
			return pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: %s: interface %s: %s %d is more than this node allows, which is %d",
				r.request, s.source.options, s.name, l.option, l.asked, l.most)
		}
	}
	return nil
}

// queues returns the queues of the pod's end. A tap has queue pairs.
func (r *resolver) queues(kind string, o pod.InterfaceOptions) queues {
	q := queues{rx: o.RxQueues, tx: o.TxQueues}
	switch kind {
	case pod.TypeMemif:
		return q
	case pod.TypeTap:
		q = queues{rx: cmp.Or(q.rx, q.tx), tx: cmp.Or(q.tx, q.rx)}
	}
	return queues{
		rx: recordedQueues(cmp.Or(q.rx, r.config.PodQueues)),
		tx: recordedQueues(cmp.Or(q.tx, r.config.PodQueues)),
	}
}

// recordedQueues returns a number of queues as in records, where 0 is the default of one queue.
func recordedQueues(n int) int {
	if n == 1 {
		return 0
	}
	return n
}

// role returns the role of a memif on a direct network: a network connects one client and one server of this node.
func (r *resolver) role(s spec) (string, error) {
	if !s.network.isDirect() {
		return s.memif.options.Role, nil
	}
	s.memif.options.Role = cmp.Or(s.memif.options.Role, pod.RoleClient)
	for _, c := range r.connections.inOrder() {
		if c.displaced || c.isOlderSandbox(r.request.ID, r.request.Key) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network != s.network.name || i.Memif == nil {
				continue
			}
			if err := r.checkDirectPeer(s, c, i); err != nil {
				return "", err
			}
		}
	}
	return s.memif.options.Role, nil
}

// checkDirectPeer rejects a memif that does not suit a member of its direct network.
func (r *resolver) checkDirectPeer(s spec, c *connection, i pod.Interface) error {
	role := s.memif.options.Role
	mode := cmp.Or(s.memif.options.Mode, pod.MemifEthernet)
	network := s.network.name
	switch {
	case i.Memif.Role == role && r.connections.isOfEarlierPod(r.request.ID, desired.HolderOf(c.Key, i.Name)):
		return pod.Errorf(pod.CodeTryAgain,
			"%s: interface %s: the %s of network %s is an earlier pod of this name that is not deleted yet; try again",
			r.request, s.name, role, network)
	case i.Memif.Role == role:
		return pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: direct network %s has a %s on this node already, %s of %s; "+
				"it connects one server (option role) and one client",
			r.request, s.name, network, role, i.Name, c.Name())
	case i.Memif.Mode != mode:
		return pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: mode %s differs from mode %s of %s of %s, to which network %s connects it",
			r.request, s.name, mode, i.Memif.Mode, i.Name, c.Name(), network)
	}
	return nil
}

// addresses accepts the addresses that a pod requests: on a network of type L2 without cidrs with prefix lengths. There
// it rejects an address of another interface on this node; interfaces of other nodes are unknown.
func (r *resolver) addresses(s spec, q pod.AddressRequest) (addressChoice, error) {
	ips := q.IPs
	if q.IPAMClaim != "" {
		return r.claimed(s, q)
	}
	if !s.network.hasNoCIDRs() {
		return addressChoice{wanted: addressesOf(ips)}, nil
	}
	for _, p := range ips {
		a := p.Addr()
		switch {
		case p.IsSingleIP():
			example := 64
			if a.Is4() {
				example = 24
			}
			return addressChoice{}, pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: interface %s: address %s needs a prefix length, as in \"%s/%d\": network %s has no cidrs",
				r.request, s.name, a, a, example, s.network.name)
		case !canBePods(a) || namesSubnet(p):
			return addressChoice{}, pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: interface %s: %s cannot be a pod's address", r.request, s.name, p)
		case s.network.custom.Network.MovingAddresses().Contain(a):
			return addressChoice{}, pod.Errorf(pod.CodeAddressInUse,
				"%s: interface %s: address %s is one of the allowedAddresses of network %s, which move between pods; "+
					"request it by the option allowedAddresses, or another one", r.request, s.name, a, s.network.name)
		}
		if holder := r.connections.otherHolder(s.network.name, a, r.request.ID, r.request.Key); holder != "" {
			inUse := ipam.ErrInUse{Address: a, Holder: holder}
			return addressChoice{}, r.connections.inUse(subject(r.request, s.name), r.request.ID, inUse)
		}
	}
	return addressChoice{brought: ips}, nil
}

// claimed accepts the addresses that an IPAMClaim holds; a claim without addresses will hold those that the interface
// gets.
func (r *resolver) claimed(s spec, q pod.AddressRequest) (addressChoice, error) {
	claim, known := r.request.IPAMClaims[q.IPAMClaim]
	network := cmp.Or(s.network.name, pod.DefaultNetwork)
	switch {
	case !known:
		return addressChoice{}, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: ipamClaim %s: only pods of a cluster have IPAMClaims", r.request, s.name, q.IPAMClaim)
	case s.network.allocator() == nil:
		return addressChoice{}, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: ipamClaim %s: network %s has no addresses", r.request, s.name, q.IPAMClaim, network)
	}
	if err := claim.Suits(s.name, network, q.IPs); err != nil {
		return addressChoice{}, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: ipamClaim: %w", r.request,
			s.name, err)
	}
	choice := addressChoice{claim: &claim, wanted: claim.Addresses}
	if len(choice.wanted) == 0 {
		choice.wanted = addressesOf(q.IPs)
	}
	return choice, nil
}

// macOf returns the MAC that an interface requests, or that of its claim; zero: any.
func macOf(requested netaddr.MAC, claim *pod.IPAMClaim) netaddr.MAC {
	if claim == nil || !requested.IsZero() {
		return requested
	}
	return desired.MACOf(claim.MACSeed(), desired.LinuxEnd)
}

// moving accepts the addresses and the virtual routers that the network permits, unless another interface on this node
// has an address or a MAC of them as its own: the network permitted it later than the interface got it.
func (r *resolver) moving(s spec, m pod.Moving) (pod.Moving, error) {
	for _, p := range m.Addresses {
		if a, holder := r.connections.otherHolderIn(s.network.name, p, r.request.ID, r.request.Key); holder != "" {
			inUse := ipam.ErrInUse{Address: a, Holder: holder}
			return pod.Moving{}, r.connections.inUse(subject(r.request, s.name), r.request.ID, inUse)
		}
	}
	for _, id := range m.VirtualRouters {
		for _, mac := range pod.MACsOfVirtualRouter(id) {
			if c := r.connections.holderOfMAC(mac); c != nil && c.Key != r.request.Key {
				return pod.Moving{}, pod.Errorf(pod.CodeAddressInUse,
					"%s: interface %s: MAC %s of virtual router %d is held by %s (%s); use another virtual router",
					r.request, s.name, mac, id, c.Name(), c.Key)
			}
		}
	}
	return m, nil
}

// routed accepts the prefixes that the network permits, unless they lead elsewhere: to another pod of this node, to one
// of another node, or to the outside.
func (r *resolver) routed(s spec, prefixes []netip.Prefix) ([]netip.Prefix, error) {
	for _, p := range prefixes {
		if other, holder := r.connections.otherRouted(s.network.name, p, r.request.ID, r.request.Key); holder != nil {
			if holder.Pod.String() == r.request.ID.String() && holder.hasOtherUID(r.request.ID) {
				return nil, pod.Errorf(pod.CodeTryAgain,
					"%s: interface %s: routedPrefixes: %s is that of an earlier pod of this name that is not deleted yet; try again",
					r.request, s.name, other)
			}
			return nil, pod.Errorf(pod.CodeAddressInUse,
				"%s: interface %s: routedPrefixes: %s leads to %s (%s) already; request another prefix, or delete that pod",
				r.request, s.name, other, holder.Name(), holder.Key)
		}
		if other, node := r.mesh.RoutedElsewhere(s.network.name, p); node != "" {
			return nil, pod.Errorf(pod.CodeTryAgain,
				"%s: interface %s: routedPrefixes: %s leads to a pod of node %s; delete that pod, or request another prefix",
				r.request, s.name, other, node)
		}
		if subnet, name := r.externals.SubnetIn(s.network.name, p); name != "" {
			return nil, pod.Errorf(pod.CodeAddressInUse,
				"%s: interface %s: routedPrefixes: %s overlaps %s of external interface %s; request another prefix",
				r.request, s.name, p, subnet, name)
		}
	}
	return prefixes, nil
}

// subject names an interface of an event in errors; the main interface is the event itself.
func subject(request *pod.Request, name string) string {
	if name == request.Key.IfName {
		return request.String()
	}
	return request.String() + ": interface " + name
}

// mtu returns the MTU of an interface, which its network and the ring of a memif must permit.
func (r *resolver) mtu(s spec, q pod.InterfaceRequest) (int, error) {
	least, most := s.network.mtuLimits(s.addresses.brought)
	mtu := cmp.Or(q.Options.MTU, most)
	if mtu < least || mtu > most {
		return 0, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: MTU %d is not within %d to %d, which network %s allows",
			r.request, s.name, mtu, least, most, q.Network)
	}
	if s.kind == pod.TypeMemif {
		if err := s.memif.options.Holds(mtu); err != nil {
			return 0, pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %w", r.request, s.name, err)
		}
	}
	return mtu, nil
}

// mac returns the MAC of the pod's end: the requested one, else one that is derived from the name of the object.
func (r *resolver) mac(s spec, asked netaddr.MAC) (netaddr.MAC, error) {
	if asked.IsZero() {
		return desired.MACOf(s.object, desired.LinuxEnd), nil
	}
	what := ""
	if s.name != r.request.Key.IfName {
		what = "interface " + s.name + ": "
	}
	if r.isGateways(asked) || isDataplanes(asked, s.object) {
		return netaddr.MAC{}, pod.Errorf(pod.CodeAddressInUse,
			"%s: %srequested MAC %s is the gateway's or the node's; request another one or none",
			r.request, what, asked)
	}
	if c := r.connections.holderOfMAC(asked); c != nil && c.Key != r.request.Key {
		return netaddr.MAC{}, pod.Errorf(pod.CodeAddressInUse,
			"%s: %srequested MAC %s is held by %s (%s); request another one or none",
			r.request, what, asked, c.Name(), c.Key)
	}
	return asked, nil
}

// isGateways reports whether an interface of the dataplane or the node has the MAC.
func (r *resolver) isGateways(mac netaddr.MAC) bool {
	if mac == desired.MACOf(desired.HostObject, desired.LinuxEnd) ||
		mac == desired.MACOf(desired.TunnelObject, desired.LinuxEnd) {
		return true
	}
	objects := []string{desired.GatewayObject, desired.HostObject, desired.TunnelObject}
	for _, c := range r.networks.Customs() {
		objects = append(objects, c.Loopback)
	}
	for _, c := range r.connections {
		for _, i := range c.Interfaces {
			objects = append(objects, i.Object)
		}
	}
	return slices.ContainsFunc(objects, func(object string) bool { return isDataplanes(mac, object) })
}

// isDataplanes reports whether the node's side of an interface has the MAC: the dataplane's end, or the node's end of a
// veth.
func isDataplanes(mac netaddr.MAC, object string) bool {
	return mac == desired.MACOf(object, desired.DataplaneEnd) || mac == desired.MACOf(object, desired.HostEnd)
}

// distinctMACs rejects two interfaces of a pod with the same MAC.
func distinctMACs(request *pod.Request, specs []spec) error {
	seen := make(map[netaddr.MAC]string)
	for _, s := range specs {
		if other, taken := seen[s.mac]; taken {
			return pod.Errorf(pod.CodeAddressInUse,
				"%s: interface %s: MAC %s is already used by interface %s; request another one or none",
				request, s.name, s.mac, other)
		}
		seen[s.mac] = s.name
		for _, o := range specs {
			if isDataplanes(s.mac, o.object) {
				return pod.Errorf(pod.CodeAddressInUse,
					"%s: interface %s: MAC %s is already used by the gateway of interface %s; request another one or none",
					request, s.name, s.mac, o.name)
			}
		}
	}
	return nil
}

// distinctAddresses rejects two interfaces of a pod with the same address on a network.
func distinctAddresses(request *pod.Request, specs []spec) error {
	seen := make(map[string]string)
	for _, s := range specs {
		for _, p := range s.addresses.brought {
			key := s.network.name + " " + p.Addr().String()
			if other, taken := seen[key]; taken {
				return pod.Errorf(pod.CodeAddressInUse,
					"%s: interfaces %s and %s of network %s have the same address %s", request, other, s.name,
					s.network.name, p.Addr())
			}
			seen[key] = s.name
		}
	}
	return nil
}

// distinctRouted rejects prefixes behind two interfaces of a pod that overlap.
func distinctRouted(request *pod.Request, specs []spec) error {
	for at, s := range specs {
		for _, p := range s.routed {
			for _, other := range specs[:at] {
				if other.network.name == s.network.name && slices.ContainsFunc(other.routed, p.Overlaps) {
					return pod.Errorf(pod.CodeInvalidAnnotation,
						"%s: interfaces %s and %s of network %s have the same routedPrefixes %s", request, other.name,
						s.name, s.network.name, p)
				}
			}
		}
	}
	return nil
}

// distinctRoles rejects two memifs of a pod with the same role on a direct network.
func distinctRoles(request *pod.Request, specs []spec) error {
	members := make(pod.DirectMembers)
	for _, s := range specs {
		m := s.memif.assigned
		if m == nil || !m.IsDirect() {
			continue
		}
		if err := members.Add(s.name, s.network.name, m.Role); err != nil {
			return request.Failed(err)
		}
	}
	return nil
}

// atMostOneDNS rejects two interfaces that request the DNS of their networks.
func atMostOneDNS(request *pod.Request, specs []spec) error {
	var asking []string
	for _, s := range specs {
		if !s.dns.IsZero() {
			asking = append(asking, s.name)
		}
	}
	if err := pod.AtMostOneDNS(asking); err != nil {
		return pod.Errorf(pod.CodeInvalidAnnotation, "%s: %w", request, err)
	}
	return nil
}

// distinctDestinations rejects a pod with routes to the same addresses by interfaces of different networks: networks
// may overlap, but then a pod can be on one of them only.
func distinctDestinations(ev fmt.Stringer, interfaces []pod.Interface) error {
	type place struct {
		destination netip.Prefix
		metric      int
	}
	taken := make(map[place]pod.Interface)
	for _, i := range interfaces {
		if i.Memif != nil { // its program has its own routes
			continue
		}
		var places []place
		for _, r := range i.Routes {
			places = append(places, place{r.Destination, r.Metric})
		}
		for _, p := range i.Addresses {
			places = append(places, place{p.Masked(), 0})
		}
		for _, at := range places {
			if other, ambiguous := taken[at]; ambiguous && other.Network != i.Network {
				return pod.Errorf(pod.CodeInvalidAnnotation,
					"%s: interfaces %s (network %s) and %s (network %s) both lead to %s; a pod can have one of them",
					ev, other.Name, other.Network, i.Name, i.Network, at.destination)
			}
			taken[at] = i
		}
	}
	return nil
}
