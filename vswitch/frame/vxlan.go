package frame

import (
	"encoding/binary"
	"net/netip"
)

// VXLANLen is the length of a VXLAN header (RFC 7348 5).
const VXLANLen = 8

// MaxVNI is the largest VXLAN network identifier.
const MaxVNI = 1<<24 - 1

// vxlanFlags means that the VNI is valid. As in VPP other flags are rejected.
const vxlanFlags = 0x08

// TTL of VPP's tunnel packets on the wire: one less than in its templates.
const (
	vxlanTTL      = 253
	vxlanHopLimit = 254
)

// ParseVXLAN checks a VXLAN header and returns its VNI.
func ParseVXLAN(b []byte) (vni uint32, err error) {
	if len(b) < VXLANLen {
		return 0, ErrShort
	}
	if b[0] != vxlanFlags {
		return 0, ErrFormat
	}
	return binary.BigEndian.Uint32(b[4:]) >> 8, nil
}

// VXLANHeaders are the IP, UDP and VXLAN headers of a tunnel. DF is not set. As in VPP there is no UDP checksum over
// IPv4 (RFC 7348 5), because the inner frame has its own, and there is one over IPv6, which requires it (RFC 8200 8.1).
type VXLANHeaders struct {
	headers [IPv6Len + UDPLen + VXLANLen]byte
	length  int
	udp     int    // offset of the UDP header
	sum     uint16 // of the IPv4 header without total length and identification
}

// NewVXLANHeaders prepares the headers; both addresses are of one family. Push sets the source port.
func NewVXLANHeaders(source netip.Addr, destination netip.AddrPort, vni uint32) VXLANHeaders {
	e := VXLANHeaders{udp: IPv6Len}
	f := IPFields{TTL: vxlanHopLimit, Protocol: ProtocolUDP, Source: source, Destination: destination.Addr()}
	if source.Is4() {
		e.udp = IPv4Len
		f.TTL = vxlanTTL
		PutIPv4(e.headers[:], f)
		clear(e.headers[2:8])
		clear(e.headers[10:12])
		e.sum = Sum(e.headers[:IPv4Len], 0)
	} else {
		PutIPv6(e.headers[:], f)
	}
	e.length = e.udp + UDPLen + VXLANLen
	binary.BigEndian.PutUint16(e.headers[e.udp+2:], destination.Port())
	e.headers[e.udp+UDPLen] = vxlanFlags
	binary.BigEndian.PutUint32(e.headers[e.length-4:], vni<<8)
	return e
}

// Push adds the headers to the frame in b; false if there is no head room or the IP packet is too long. The frame must
// be complete, because Virtio cannot describe inner offloads. The UDP checksum is complete, too: VPP would apply a
// partial one to the inner packet.
func (e *VXLANHeaders) Push(b *Buffer, sourcePort, identification uint16) bool {
	if e.udp+UDPLen+VXLANLen+b.Len() > 1<<16-1 || !b.Push(e.length) {
		return false
	}
	b.Virtio = Virtio{}
	raw := b.Bytes()
	copy(raw, e.headers[:e.length])
	binary.BigEndian.PutUint16(raw[e.udp:], sourcePort)
	binary.BigEndian.PutUint16(raw[e.udp+4:], uint16(len(raw)-e.udp))
	if e.udp == IPv6Len {
		length := len(raw) - IPv6Len
		binary.BigEndian.PutUint16(raw[4:], uint16(length))
		sum := ^Sum(raw[IPv6Len:], packetPseudoHeader(raw, ProtocolUDP, length))
		if sum == 0 {
			sum = 0xffff // zero means no checksum
		}
		binary.BigEndian.PutUint16(raw[IPv6Len+udpChecksumOffset:], sum)
		return true
	}
	binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
	binary.BigEndian.PutUint16(raw[4:], identification)
	binary.BigEndian.PutUint16(raw[10:], ^fold(uint64(e.sum)+uint64(len(raw))+uint64(identification)))
	return true
}
