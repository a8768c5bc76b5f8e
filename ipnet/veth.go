package ipnet

import "github.com/weftnet/weft/wire"

// veth is both ends of a link of type veth: the kernel makes them, the dataplane reads and writes the node's.
func (l link) veth() values {
	var v values
	host := hostName(l.object)
	v.add(wire.InterfaceKey(l.object), wire.Interface{
		Type: wire.TypeAFPacket, MAC: l.mac, MTU: l.mtu, Up: true, GSO: l.gso,
		AFPacket: wire.AFPacket{Link: host, On: l.on(), RxQueues: l.txQueues, TxQueues: l.rxQueues},
	})
	v.add(l.on(), wire.Veth{
		Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, HostName: host, HostMAC: macOf(l.object, hostEnd),
		MTU: l.mtu, Alias: l.alias, Up: true, RxQueues: l.rxQueues, TxQueues: l.txQueues, MaxSegment: l.maxSegment,
	})
	return v
}
