// Package neighbour makes the messages by which an interface tells its neighbours, unasked, which MAC an address has
// now: gratuitous ARP and unsolicited neighbour advertisements.
package neighbour

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
)

// Constants of ARP (RFC 826), IPv6 (RFC 8200) and neighbour discovery (RFC 4861, section 4.4).
const (
	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd

	arpEthernet = 1
	arpRequest  = 1

	versionIPv6 = 6 << 28
	nextICMPv6  = 58
	hopLimit    = 255 // proves that no router forwarded the message

	advertisement   = 136
	overridesCache  = 0x20
	targetLinkLayer = 2
	checksumOffset  = 2
)

// Broadcast is the MAC of all neighbours, to which gratuitous ARP is sent.
var Broadcast = netaddr.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// allNodes is the multicast address of all neighbours (RFC 4291, section 2.7.1), and its MAC (RFC 2464, section 7).
var (
	allNodes    = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 1})
	allNodesMAC = netaddr.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// AllNodes returns the multicast address of all neighbours, to which advertisements are sent.
func AllNodes() netip.Addr { return allNodes }

// GratuitousARP returns a gratuitous ARP request for an IPv4 address: it is sender and target (RFC 5227, section 3).
func GratuitousARP(mac netaddr.MAC, address netip.Addr) []byte {
	own := address.As4()
	packet := binary.BigEndian.AppendUint16(nil, arpEthernet)
	packet = binary.BigEndian.AppendUint16(packet, etherTypeIPv4)
	packet = append(packet, byte(len(mac)), byte(len(own)))
	packet = binary.BigEndian.AppendUint16(packet, arpRequest)
	packet = append(packet, mac[:]...)
	packet = append(packet, own[:]...)
	packet = append(packet, make([]byte, len(mac))...)
	return append(packet, own[:]...)
}

// Advertisement returns an unsolicited neighbour advertisement for an IPv6 address (RFC 4861, section 7.2.6), with a
// checksum of zero.
func Advertisement(mac netaddr.MAC, address netip.Addr) []byte {
	target := address.As16()
	message := []byte{advertisement, 0, 0, 0, overridesCache, 0, 0, 0}
	message = append(message, target[:]...)
	message = append(message, targetLinkLayer, 1)
	return append(message, mac[:]...)
}

// Frame returns the Ethernet frame that announces an address.
func Frame(mac netaddr.MAC, address netip.Addr) []byte {
	if address.Is4() {
		return append(header(Broadcast, mac, etherTypeARP), GratuitousARP(mac, address)...)
	}
	message := Advertisement(mac, address)
	binary.BigEndian.PutUint16(message[checksumOffset:], checksum(address, message))
	frame := header(allNodesMAC, mac, etherTypeIPv6)
	frame = binary.BigEndian.AppendUint32(frame, versionIPv6)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(message)))
	frame = append(frame, nextICMPv6, hopLimit)
	frame = append(frame, address.AsSlice()...)
	frame = append(frame, allNodes.AsSlice()...)
	return append(frame, message...)
}

func header(to, from netaddr.MAC, etherType uint16) []byte {
	return binary.BigEndian.AppendUint16(append(to[:], from[:]...), etherType)
}

// checksum returns the Internet checksum of an ICMPv6 message from an address to all nodes (RFC 8200, section 8.1).
func checksum(from netip.Addr, message []byte) uint16 {
	summed := append(from.AsSlice(), allNodes.AsSlice()...)
	summed = binary.BigEndian.AppendUint32(summed, uint32(len(message)))
	summed = binary.BigEndian.AppendUint32(summed, nextICMPv6)
	summed = append(summed, message...)
	var sum uint32
	for i := 0; i < len(summed); i += 2 { // all parts have an even length
		sum += uint32(binary.BigEndian.Uint16(summed[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	return ^uint16(sum)
}
