package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// podValues is what wires an attachment, but for what is withheld.
func (n *Network) podValues(a *pod.Attachment) values { return n.desirable(a.Key, n.allValues(a)) }

// allValues is what wires an attachment. It follows from what is kept of it and from its networks.
func (n *Network) allValues(a *pod.Attachment) values {
	var v values
	for _, i := range a.Interfaces {
		v = append(v, n.interfaceValues(a, i)...)
	}
	v = append(v, n.routesOutside(a)...)
	v = append(v, n.deviceValues(a)...)
	if len(v) > 0 {
		v.add(wire.NamespaceKey(a.Netns.Path), wire.Namespace(a.Netns))
	}
	return v
}

// interfaceValues is what makes one interface; nothing for one that is not ours, or whose network is not known.
func (n *Network) interfaceValues(a *pod.Attachment, i pod.Interface) values {
	c := n.custom(i.Network)
	if i.Type == pod.TypeIPAM || c == nil && isCustom(i.Network) {
		return nil
	}
	l := linkOf(a, i)
	l.maxSegment = n.config.MaxSegment
	l.forwards = n.config.AllowIPForwarding
	if i.Memif != nil {
		if l.secret = n.secretOf(i.Memif.Allocation); l.secret == "" {
			return nil // never without a secret
		}
	}
	v := l.ends()
	switch {
	case c != nil:
		v = append(v, c.attach(l)...)
	case i.Network == "":
		v = append(v, n.attachToDefault(a, l)...)
	}
	if !l.isLinux() {
		return v
	}
	if c == nil || c.Network.Type == pod.L3 {
		for _, gateway := range i.Gateways {
			l.linuxNeighbour(&v, gateway)
		}
	}
	for _, r := range i.Routes {
		l.linuxRoute(&v, r.Destination, r.Gateway, netip.Addr{})
	}
	return v
}

// attachToDefault makes a link one of the network default. By the main interface a pod may send from all the addresses that
// it has there: its default route leads there.
func (n *Network) attachToDefault(a *pod.Attachment, l link) values {
	v := podsVRF.attach(l, n.pools.Load().families())
	if l.judged {
		var sources []netip.Prefix
		for _, i := range a.Interfaces {
			if i.Network == "" {
				sources = append(sources, singles(i.Addresses)...)
			}
		}
		l.onlyFrom(&v, sources...)
	}
	host := n.hostLink()
	for _, p := range l.addresses {
		family := wire.FamilyOf(p.Addr())
		if node := n.nodeAddress(family); node.IsValid() && n.poolOf(p.Addr()) == "" { // no route of the node's leads there
			host.linuxRoute(&v, single(p.Addr()), gatewayOf(family), node)
		}
	}
	return v
}

func linkOf(a *pod.Attachment, i pod.Interface) link {
	l := link{
		kind: i.Type, object: i.Object, namespace: a.Netns.Path, name: i.Name, alias: aliasOf(a.Key, i.Name),
		mac: macOf(i.Object, dataplaneEnd), peerMAC: macOf(i.Object, linuxEnd), mtu: i.MTU, addresses: i.Addresses,
		judged: i.AntiSpoof || i.Network == "" && i.Name == a.Key.IfName, memif: i.Memif,
		rxQueues: i.RxQueues, txQueues: i.TxQueues,
	}
	if mac, err := wire.ParseMAC(i.MAC); err == nil { // as the pod asked for
		l.peerMAC = mac
	}
	return l
}
