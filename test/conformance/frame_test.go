package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// gopacket builds and parses the frames; neither dataplane uses it.

func hw(s string) net.HardwareAddr {
	m := mac(s)
	return net.HardwareAddr(m[:])
}

const vxlanPort = 4789

var broadcast = hw("ff:ff:ff:ff:ff:ff")

func build(all ...gopacket.SerializableLayer) []byte {
	for i, layer := range all {
		if i == 0 {
			continue
		}
		if over, ok := all[i-1].(gopacket.NetworkLayer); ok {
			switch l := layer.(type) {
			case *layers.UDP:
				_ = l.SetNetworkLayerForChecksum(over)
			case *layers.ICMPv6:
				_ = l.SetNetworkLayerForChecksum(over)
			}
		}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		all...); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func ethernet(src, dst net.HardwareAddr, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: kind}
}

func arpRequest(src net.HardwareAddr, from, target string) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{ethernet(src, broadcast, layers.EthernetTypeARP),
		arpMessage(layers.ARPRequest, src, from, make(net.HardwareAddr, 6), target)}
}

func arpReply(src net.HardwareAddr, from string, dst net.HardwareAddr, to string) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		ethernet(src, dst, layers.EthernetTypeARP), arpMessage(layers.ARPReply, src, from, dst, to),
	}
}

//nolint:revive // a parameter for each field of the message
func arpMessage(operation uint16, src net.HardwareAddr, from string, dst net.HardwareAddr, to string) *layers.ARP {
	return &layers.ARP{
		AddrType:          layers.LinkTypeEthernet,
		Protocol:          layers.EthernetTypeIPv4,
		HwAddressSize:     6,
		ProtAddressSize:   4,
		Operation:         operation,
		SourceHwAddress:   src,
		SourceProtAddress: net.ParseIP(from).To4(),
		DstHwAddress:      dst,
		DstProtAddress:    net.ParseIP(to).To4()}
}

func ip4(from, to string, ttl uint8, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{
		Version:  4,
		IHL:      5,
		TTL:      ttl,
		Protocol: protocol,
		SrcIP:    net.ParseIP(from).To4(),
		DstIP:    net.ParseIP(to).To4(),
	}
}

func ipv6(from, to string, hops uint8, next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: next, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
}

// echo4 is a ping behind the Ethernet header.
func echo4(from, to string, ttl uint8, size int) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{ip4(from, to, ttl, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 7, Seq: 1},
		gopacket.Payload(make([]byte, size))}
}

func echo6(from, to string, hops uint8, size int) []gopacket.SerializableLayer {
	ip := ipv6(from, to, hops, layers.IPProtocolICMPv6)
	return []gopacket.SerializableLayer{
		ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)},
		&layers.ICMPv6Echo{Identifier: 7, SeqNumber: 1}, gopacket.Payload(make([]byte, size)),
	}
}

// firstFragment is the length of the payload of a first fragment, in bytes.
const firstFragment = 1200

// fragmented returns the frames of the two fragments of a packet to the router.
func fragmented(packet []gopacket.SerializableLayer) [][]byte {
	if header, six := packet[0].(*layers.IPv6); six {
		return fragments6(*header, build(packet...)[40:])
	}
	return fragments4(*packet[0].(*layers.IPv4), build(packet...)[20:])
}

func fragments4(header layers.IPv4, payload []byte) [][]byte {
	first := header
	first.Id = 77
	first.Flags = layers.IPv4MoreFragments
	second := first
	second.Flags = 0
	second.FragOffset = firstFragment / 8
	return [][]byte{
		build(toRouter(type4, []gopacket.SerializableLayer{&first, gopacket.Payload(payload[:firstFragment])})...),
		build(toRouter(type4, []gopacket.SerializableLayer{&second, gopacket.Payload(payload[firstFragment:])})...),
	}
}

func fragments6(header layers.IPv6, payload []byte) [][]byte {
	extension := func(offset uint16, more byte) gopacket.Payload {
		b := []byte{byte(header.NextHeader), 0}
		b = binary.BigEndian.AppendUint16(b, offset|uint16(more))
		return binary.BigEndian.AppendUint32(b, 77)
	}
	outer := header
	outer.NextHeader = layers.IPProtocolIPv6Fragment
	fragment := func(extension gopacket.Payload, part []byte) []byte {
		return build(toRouter(type6, []gopacket.SerializableLayer{&outer, append(extension, part...)})...)
	}
	return [][]byte{
		fragment(extension(0, 1), payload[:firstFragment]),
		fragment(extension(firstFragment, 0), payload[firstFragment:]),
	}
}

// solicitation requests the MAC of a target.
func solicitation(src net.HardwareAddr, from, target string) []gopacket.SerializableLayer {
	t := net.ParseIP(target)
	group := net.ParseIP("ff02::1:ff00:0")
	copy(group[13:], t[13:])
	ip := ipv6(from, group.String(), 255, layers.IPProtocolICMPv6)
	return []gopacket.SerializableLayer{
		ethernet(src, net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]},
			layers.EthernetTypeIPv6),
		ip,
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)},
		&layers.ICMPv6NeighborSolicitation{
			TargetAddress: t,
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: src}},
		},
	}
}

// describe returns the text of a frame for the transcript. A bare frame has no Ethernet header.
func describe(frame []byte, bare bool) string {
	first := gopacket.Decoder(layers.LayerTypeEthernet)
	if bare {
		first = layers.LayerTypeIPv4
		if len(frame) > 0 && frame[0]>>4 == 6 {
			first = layers.LayerTypeIPv6
		}
	}
	var out []string
	for _, layer := range gopacket.NewPacket(frame, first, gopacket.Default).Layers() {
		if text := describeLayer(layer); text != "" {
			out = append(out, text)
		}
		if udp, ok := layer.(*layers.UDP); ok && udp.DstPort != vxlanPort {
			break // gopacket guesses the payload's protocol from the port
		}
	}
	return strings.Join(out, " | ")
}

func describeLayer(layer gopacket.Layer) string {
	switch l := layer.(type) {
	case *layers.Ethernet:
		return randomMAC.ReplaceAllString(fmt.Sprintf("%s > %s", l.SrcMAC, l.DstMAC), "02:fe:random")
	case *layers.Dot1Q:
		return fmt.Sprintf("VLAN %d", l.VLANIdentifier)
	case *layers.ARP:
		kind := map[uint16]string{layers.ARPRequest: "request", layers.ARPReply: "reply"}[l.Operation]
		return randomMAC.ReplaceAllString(fmt.Sprintf("ARP %s %s %s > %s %s", kind, net.HardwareAddr(l.SourceHwAddress),
			net.IP(l.SourceProtAddress),
			net.HardwareAddr(l.DstHwAddress), net.IP(l.DstProtAddress)), "02:fe:random")
	case *layers.IPv4:
		text := fmt.Sprintf("%s > %s ttl=%d tos=%d length=%d", l.SrcIP, l.DstIP, l.TTL, l.TOS, l.Length)
		if l.Flags != 0 || l.FragOffset != 0 {
			text += fmt.Sprintf(" flags=%v offset=%d", l.Flags, l.FragOffset)
		}
		return text
	case *layers.IPv6:
		return fmt.Sprintf("%s > %s hops=%d class=%d length=%d", l.SrcIP, l.DstIP, l.HopLimit, l.TrafficClass, l.Length)
	case *layers.IPv6Fragment:
		return fmt.Sprintf("fragment offset=%d more=%t", l.FragmentOffset, l.MoreFragments)
	case *layers.ICMPv4:
		return fmt.Sprintf("%v id=%d seq=%d", l.TypeCode, l.Id, l.Seq)
	case *layers.ICMPv6:
		text := fmt.Sprint(l.TypeCode)
		if l.TypeCode.Type() == layers.ICMPv6TypePacketTooBig && len(l.Payload) >= 4 {
			text += fmt.Sprintf(" mtu=%d",
				uint32(l.Payload[0])<<24|uint32(l.Payload[1])<<16|uint32(l.Payload[2])<<8|uint32(l.Payload[3]))
		}
		return text
	case *layers.ICMPv6NeighborAdvertisement:
		return fmt.Sprintf("target=%s flags=%#x options=%s", l.TargetAddress, l.Flags, l.Options)
	case *layers.ICMPv6NeighborSolicitation:
		return fmt.Sprintf("target=%s options=%s", l.TargetAddress, l.Options)
	case *layers.UDP:
		if l.DstPort == vxlanPort {
			return fmt.Sprintf("UDP to %d length=%d checksum=%t", l.DstPort, l.Length, l.Checksum != 0)
		}
		return fmt.Sprintf("UDP %d > %d length=%d", l.SrcPort, l.DstPort, l.Length)
	case *layers.SCTP:
		return fmt.Sprintf("SCTP %d > %d", l.SrcPort, l.DstPort)
	case *layers.VXLAN:
		return fmt.Sprintf("VNI %d valid=%t", l.VNI, l.ValidIDFlag)
	case *layers.ICMPv6Echo:
		return fmt.Sprintf("id=%d seq=%d", l.Identifier, l.SeqNumber)
	case *gopacket.DecodeFailure:
		return "not decoded: " + l.Error().Error()
	}
	return ""
}

// probeMAC is the prefix of the MACs of probes.
var probeMAC = []byte{2, 0, 0, 0, 0x0e}

// background reports whether a frame is not a reaction to the case: router advertisements, multicast reports, and
// probes of other ports.
func background(frame []byte) bool {
	if bytes.Contains(frame, probeMAC) {
		return true
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Lazy)
	for _, kind := range []gopacket.LayerType{
		layers.LayerTypeICMPv6RouterAdvertisement, layers.LayerTypeMLDv2MulticastListenerReport,
		layers.LayerTypeICMPv6RouterSolicitation, layers.LayerTypeMLDv1MulticastListenerReport,
	} {
		if p.Layer(kind) != nil {
			return true
		}
	}
	return false
}
