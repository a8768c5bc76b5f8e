package memif

import (
	"bytes"
	"encoding/binary"
)

// messageSize is the size of every control message.
const messageSize = 128

// version is memif 2.0.
const version = 2 << 8

// messageType is a message's first field.
type messageType uint16

const (
	ackMessage messageType = 1 + iota
	helloMessage
	initMessage
	addRegionMessage
	addRingMessage
	connectMessage
	connectedMessage
	disconnectMessage
)

const (
	nameSize   = 32
	reasonSize = 96
	// ringToServer is the flag of ADD_RING for packets from client to server.
	ringToServer = 1
)

// message is one control message: packed, little endian, zero in unused bytes.
type message [messageSize]byte

func newMessage(t messageType) *message {
	m := new(message)
	m.put16(0, uint16(t))
	return m
}

func (m *message) kind() messageType        { return messageType(m.get16(0)) }
func (m *message) get16(at int) uint16      { return binary.LittleEndian.Uint16(m[at:]) }
func (m *message) get32(at int) uint32      { return binary.LittleEndian.Uint32(m[at:]) }
func (m *message) put16(at int, v uint16)   { binary.LittleEndian.PutUint16(m[at:], v) }
func (m *message) put32(at int, v uint32)   { binary.LittleEndian.PutUint32(m[at:], v) }
func (m *message) text(at, size int) string { return text(m[at : at+size]) }

// putText leaves room for the NUL that ends every string.
func (m *message) putText(at, size int, s string) { copy(m[at:at+size-1], s) }

// text returns the printable text before the first NUL. It is safe for logs.
func text(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, bytes.ToValidUTF8(before, []byte("?"))))
}

// hello is a server's HELLO. The maxima of queues and regions are the highest index.
type hello struct {
	name                     string
	minVersion, maxVersion   uint16
	maxRegion                uint16
	maxToClient, maxToServer uint16
	maxRingLog2              uint8
}

func (h hello) encode() *message {
	m := newMessage(helloMessage)
	m.putText(2, nameSize, h.name)
	m.put16(34, h.minVersion)
	m.put16(36, h.maxVersion)
	m.put16(38, h.maxRegion)
	m.put16(40, h.maxToClient)
	m.put16(42, h.maxToServer)
	m[44] = h.maxRingLog2
	return m
}

func decodeHello(m *message) hello {
	return hello{
		name:        m.text(2, nameSize),
		minVersion:  m.get16(34),
		maxVersion:  m.get16(36),
		maxRegion:   m.get16(38),
		maxToClient: m.get16(40),
		maxToServer: m.get16(42),
		maxRingLog2: m[44],
	}
}

// initiation is a client's INIT.
type initiation struct {
	version uint16
	id      uint32
	mode    Mode
	secret  secretField
	name    string
}

func (i initiation) encode() *message {
	m := newMessage(initMessage)
	m.put16(2, i.version)
	m.put32(4, i.id)
	m[8] = uint8(i.mode)
	copy(m[9:9+secretSize], i.secret[:])
	m.putText(33, nameSize, i.name)
	return m
}

func decodeInitiation(m *message) initiation {
	return initiation{
		version: m.get16(2),
		id:      m.get32(4),
		mode:    Mode(m[8]),
		secret:  secretFieldOf(m[9 : 9+secretSize]),
		name:    m.text(33, nameSize),
	}
}

// newRegion is ADD_REGION; the region's descriptor comes with it.
type newRegion struct {
	index uint16
	size  uint64
}

func (r newRegion) encode() *message {
	m := newMessage(addRegionMessage)
	m.put16(2, r.index)
	binary.LittleEndian.PutUint64(m[4:], r.size)
	return m
}

func decodeNewRegion(m *message) newRegion {
	return newRegion{index: m.get16(2), size: binary.LittleEndian.Uint64(m[4:])}
}

// newRing is ADD_RING; the descriptor of the ring's eventfd comes with it.
type newRing struct {
	toServer          bool
	index, region     uint16
	offset            uint32
	log2              uint8
	privateHeaderSize uint16
}

func (r newRing) encode() *message {
	m := newMessage(addRingMessage)
	if r.toServer {
		m.put16(2, ringToServer)
	}
	m.put16(4, r.index)
	m.put16(6, r.region)
	m.put32(8, r.offset)
	m[12] = r.log2
	m.put16(13, r.privateHeaderSize)
	return m
}

func decodeNewRing(m *message) newRing {
	return newRing{
		toServer:          m.get16(2)&ringToServer != 0,
		index:             m.get16(4),
		region:            m.get16(6),
		offset:            m.get32(8),
		log2:              m[12],
		privateHeaderSize: m.get16(13),
	}
}

// named is CONNECT or CONNECTED with the sender's interface name.
func named(t messageType, name string) *message {
	m := newMessage(t)
	m.putText(2, nameSize, name)
	return m
}

func disconnection(e *DisconnectError) *message {
	m := newMessage(disconnectMessage)
	m.put32(2, e.Code)
	m.putText(6, reasonSize, e.Reason)
	return m
}

func decodeDisconnection(m *message) *DisconnectError {
	return &DisconnectError{Code: m.get32(2), Reason: m.text(6, reasonSize), Remote: true}
}
