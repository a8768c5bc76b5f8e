package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// SCTP's association setup (RFC 9260, sections 3.3.2 and 3.3.3) over raw sockets: most kernels of test machines have no
// SCTP. The server answers INIT by INIT ACK. The later chunks of the handshake are not needed to know whether packets
// pass in both directions.
const (
	chunkInit    = 1
	chunkInitAck = 2

	sctpHeaderLen = 12
	initLen       = 20 // chunk header and fixed parameters
	cookie        = 7  // type of the parameter that INIT ACK must have
)

var errShort = errors.New("short SCTP packet")

// association is what INIT and INIT ACK tell.
type association struct {
	source, destination uint16
	verification        uint32 // the receiver's tag; 0 in INIT
	chunk               byte
	tag                 uint32 // the sender's tag
}

func (a association) marshal() []byte {
	b := make([]byte, sctpHeaderLen+initLen, sctpHeaderLen+initLen+8)
	binary.BigEndian.PutUint16(b[0:], a.source)
	binary.BigEndian.PutUint16(b[2:], a.destination)
	binary.BigEndian.PutUint32(b[4:], a.verification)
	chunk := b[sctpHeaderLen:]
	chunk[0] = a.chunk
	binary.BigEndian.PutUint32(chunk[4:], a.tag)
	binary.BigEndian.PutUint32(chunk[8:], 65536)  // receiver window
	binary.BigEndian.PutUint16(chunk[12:], 1)     // outbound streams
	binary.BigEndian.PutUint16(chunk[14:], 1)     // inbound streams
	binary.BigEndian.PutUint32(chunk[16:], a.tag) // initial TSN
	if a.chunk == chunkInitAck {
		b = append(b, 0, cookie, 0, 8, 'w', 'e', 'f', 't')
	}
	binary.BigEndian.PutUint16(b[sctpHeaderLen+2:], uint16(len(b)-sctpHeaderLen))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func parseAssociation(b []byte) (a association, err error) {
	if len(b) < sctpHeaderLen+initLen {
		return a, errShort
	}
	a.source = binary.BigEndian.Uint16(b[0:])
	a.destination = binary.BigEndian.Uint16(b[2:])
	a.verification = binary.BigEndian.Uint32(b[4:])
	a.chunk = b[sctpHeaderLen]
	a.tag = binary.BigEndian.Uint32(b[sctpHeaderLen+4:])
	return a, nil
}

// initiate sends INIT and waits for INIT ACK.
func initiate(address string, deadline time.Time) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	network := "ip4:132"
	if target.Addr().Is6() {
		network = "ip6:132"
	}
	conn, err := net.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	ours := association{
		source:      uint16(32768 + rand.IntN(28000)),
		destination: target.Port(),
		chunk:       chunkInit,
		tag:         rand.Uint32() | 1,
	}
	if _, err := conn.WriteTo(ours.marshal(), &net.IPAddr{IP: target.Addr().AsSlice()}); err != nil {
		return err
	}
	packet := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(packet)
		if err != nil {
			return err
		}
		a, err := parseAssociation(packet[:n])
		if err == nil && a.chunk == chunkInitAck && a.destination == ours.source && a.source == ours.destination &&
			a.verification == ours.tag {
			return nil
		}
	}
}

// acknowledge answers INIT on the ports until an error of the socket.
func acknowledge(conn net.PacketConn, ports []uint16) error {
	packet := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return err
		}
		a, err := parseAssociation(packet[:n])
		if err != nil || a.chunk != chunkInit || !slices.Contains(ports, a.destination) {
			continue
		}
		reply := association{
			source:       a.destination,
			destination:  a.source,
			verification: a.tag,
			chunk:        chunkInitAck,
			tag:          rand.Uint32() | 1,
		}
		_, _ = conn.WriteTo(reply.marshal(), from) // the client notices a missing reply
	}
}
