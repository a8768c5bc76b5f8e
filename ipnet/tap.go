package ipnet

import "github.com/weftnet/weft/wire"

// tap is both ends of a link of type tap: the dataplane makes them.
func (l link) tap() values {
	var v values
	v.add(wire.InterfaceKey(l.object), wire.Interface{
		Type: wire.TypeTap, MAC: l.mac, MTU: l.mtu, Up: true, GSO: l.gso,
		Tap: wire.Tap{Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, MTU: l.mtu, Queues: l.rxQueues},
	})
	v.add(l.on(), wire.TapPeer{
		Interface: l.object, Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, MTU: l.mtu, Alias: l.alias, Up: true,
	})
	return v
}
