package ctl

import (
	"fmt"
	"net"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// packetLine describes the headers of a packet in one line: its VLANs, then the protocol, the addresses with the ports,
// and facts of the protocol. Data that no decoder knows is described by its outermost header.
func packetLine(data []byte, link layers.LinkType) string {
	packet := gopacket.NewPacket(data, link, gopacket.DecodeOptions{NoCopy: true})
	d := packetDescription{name: "packet"}
	for _, layer := range packet.Layers() {
		if d.add(layer) {
			break
		}
	}
	if packet.ErrorLayer() != nil {
		d.facts = append(d.facts, "cut or invalid")
	}
	return d.line()
}

// packetDescription has the facts of the headers of a packet that are read so far.
type packetDescription struct {
	vlans       []string
	name        string // of the innermost protocol
	source      string
	destination string
	facts       []string
}

// line joins the description.
func (d *packetDescription) line() string {
	text := strings.Join(append(d.vlans, d.name), ", ")
	if d.source != "" {
		text += " " + d.source + " > " + d.destination
	}
	return strings.Join(append([]string{text}, d.facts...), ", ")
}

// add adds a header. It returns true if the rest is of no interest: the payload of a transport, or a packet in another
// one.
func (d *packetDescription) add(layer gopacket.Layer) (isLast bool) {
	switch l := layer.(type) {
	case *layers.Ethernet:
		d.name = "Ethernet " + l.EthernetType.String()
		d.between(l.SrcMAC, l.DstMAC)
	case *layers.Dot1Q:
		d.vlans = append(d.vlans, fmt.Sprintf("VLAN %d", l.VLANIdentifier))
		d.name = "Ethernet " + l.Type.String()
	case *layers.ARP:
		d.arp(l)
		return true
	case *layers.IPv4:
		d.name = "IP " + l.Protocol.String()
		d.between(l.SrcIP, l.DstIP)
	case *layers.IPv6:
		d.name = "IP6 " + l.NextHeader.String()
		d.between(l.SrcIP, l.DstIP)
	case *layers.TCP:
		d.transport("TCP", uint16(l.SrcPort), uint16(l.DstPort))
		d.facts = append(d.facts, flagsOf(l))
		return true
	case *layers.UDP:
		d.transport("UDP", uint16(l.SrcPort), uint16(l.DstPort))
		return true
	case *layers.ICMPv4:
		d.name = "ICMP"
		d.facts = append(d.facts, l.TypeCode.String())
		return true
	case *layers.ICMPv6:
		d.name = "ICMPv6"
		d.facts = append(d.facts, l.TypeCode.String())
		return true
	}
	return false
}

func (d *packetDescription) between(source, destination fmt.Stringer) {
	d.source = source.String()
	d.destination = destination.String()
}

// transport adds the ports to the addresses.
func (d *packetDescription) transport(name string, source, destination uint16) {
	d.name = name
	d.source = fmt.Sprintf("%s:%d", bracketed(d.source), source)
	d.destination = fmt.Sprintf("%s:%d", bracketed(d.destination), destination)
}

// bracketed returns an address as it stands before a port.
func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func (d *packetDescription) arp(l *layers.ARP) {
	d.source = ""
	source := net.IP(l.SourceProtAddress)
	target := net.IP(l.DstProtAddress)
	switch l.Operation {
	case layers.ARPRequest:
		d.name = fmt.Sprintf("ARP who has %s, tell %s", target, source)
	case layers.ARPReply:
		d.name = fmt.Sprintf("ARP %s is at %s", source, net.HardwareAddr(l.SourceHwAddress))
	default:
		d.name = fmt.Sprintf("ARP operation %d", l.Operation)
	}
}

// flagsOf lists the flags of TCP that are set.
func flagsOf(l *layers.TCP) string {
	var set []string
	for _, f := range []struct {
		name string
		is   bool
	}{{"SYN", l.SYN}, {"FIN", l.FIN}, {"RST", l.RST}, {"PSH", l.PSH}, {"ACK", l.ACK}, {"URG", l.URG}} {
		if f.is {
			set = append(set, f.name)
		}
	}
	return orDash(strings.Join(set, " "))
}
