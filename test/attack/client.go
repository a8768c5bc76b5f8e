package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages of memif 2.0.
const (
	ackMessage        = 1
	initMessage       = 3
	addRegionMessage  = 4
	addRingMessage    = 5
	connectMessage    = 6
	connectedMessage  = 7
	disconnectMessage = 8

	messageSize = 128
	cookie      = 0x3E31F20
	ringHeader  = 128
	slotSize    = 16
)

// client is a memif client that says what it likes.
type client struct {
	socket *net.UnixConn
	memory []byte
	fd     int // of memory; -1: none
	events []int
	slots  int // of each ring
	rings  int // of each direction
}

// dial connects; nothing has been said then.
func dial(o orders) (*client, error) {
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	_ = socket.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{socket: socket, fd: -1}, nil
}

// leave ends the connection; the memory stays.
func (c *client) leave() {
	_ = c.socket.Close()
	for _, fd := range c.events {
		_ = unix.Close(fd)
	}
	c.events = nil
}

// free gives the memory up.
func (c *client) free() {
	if c.memory != nil {
		_ = unix.Munmap(c.memory)
	}
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.memory, c.fd = nil, -1
}

// say sends a message, with a descriptor unless that is negative.
func (c *client) say(kind uint16, fd int, fill func(b []byte)) error {
	b := make([]byte, messageSize)
	binary.LittleEndian.PutUint16(b, kind)
	if fill != nil {
		fill(b)
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := c.socket.WriteMsgUnix(b, rights, nil)
	return err
}

// hear reads messages until one of that kind; an error has the server's reason.
func (c *client) hear(kind uint16) error {
	b := make([]byte, messageSize)
	for {
		n, err := c.socket.Read(b)
		switch {
		case err != nil:
			return err
		case n < 2:
			return errors.New("hung up on")
		}
		switch binary.LittleEndian.Uint16(b) {
		case kind:
			return nil
		case disconnectMessage:
			return fmt.Errorf("disconnected: %s", bytes.TrimRight(b[6:6+95], "\x00"))
		}
	}
}

func (c *client) initiate(o orders) error {
	return c.say(initMessage, -1, func(b []byte) {
		binary.LittleEndian.PutUint16(b[2:], 2<<8)
		binary.LittleEndian.PutUint32(b[4:], 1)
		copy(b[9:33], o.Secret)
		copy(b[33:], "attacker")
	})
}

// shared is the memory that a client offers.
type shared struct {
	size       int
	unsealable bool
	paid       bool // the client has touched all pages
}

// allocate makes the memory, with room for rings at its beginning.
func (c *client) allocate(m shared, rings, log2 int) error {
	flags := unix.MFD_CLOEXEC
	if !m.unsealable {
		flags |= unix.MFD_ALLOW_SEALING
	}
	c.rings, c.slots = rings, 1<<log2
	m.size = max(m.size, 2*c.ringSpace()+(1<<20))
	fd, err := unix.MemfdCreate("attacker", flags)
	if err != nil {
		return err
	}
	c.fd = fd
	if err = unix.Ftruncate(fd, int64(m.size)); err == nil && m.paid {
		err = unix.Fallocate(fd, 0, 0, int64(m.size))
	}
	if err == nil {
		c.memory, err = unix.Mmap(fd, 0, m.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	return err
}

// ringSpace is what the rings of one direction take.
func (c *client) ringSpace() int { return c.rings * (ringHeader + c.slots*slotSize) }

// ring is the memory of one ring.
func (c *client) ring(toServer bool, i int) []byte {
	size := ringHeader + c.slots*slotSize
	at := i * size
	if !toServer {
		at += c.ringSpace()
	}
	return c.memory[at : at+size]
}

// connect goes through the whole handshake, as an honest client does. The memory is there.
func (c *client) connect(o orders, event func() (int, error)) error {
	err := c.initiate(o)
	if err == nil {
		err = c.say(addRegionMessage, c.fd, func(b []byte) { binary.LittleEndian.PutUint64(b[4:], uint64(len(c.memory))) })
	}
	for _, toServer := range []bool{true, false} {
		for i := range c.rings {
			if err != nil {
				return c.whyNot(err)
			}
			ring := c.ring(toServer, i)
			binary.LittleEndian.PutUint32(ring, cookie)
			err = c.addRing(toServer, i, event)
		}
	}
	if err == nil {
		err = c.say(connectMessage, -1, nil)
	}
	if err != nil {
		return c.whyNot(err)
	}
	return c.hear(connectedMessage)
}

// whyNot is the server's reason for not reading any more.
func (c *client) whyNot(err error) error { return errors.Join(err, c.hear(connectedMessage)) }

func (c *client) addRing(toServer bool, i int, event func() (int, error)) error {
	fd, err := event()
	if err != nil {
		return err
	}
	c.events = append(c.events, fd)
	ring := c.ring(toServer, i)
	return c.say(addRingMessage, fd, func(b []byte) {
		if toServer {
			b[2] = 1
		}
		binary.LittleEndian.PutUint16(b[4:], uint16(i))
		binary.LittleEndian.PutUint32(b[8:], uint32(uintptr(unsafe.Pointer(&ring[0]))-uintptr(unsafe.Pointer(&c.memory[0]))))
		for 1<<b[12] < c.slots {
			b[12]++
		}
	})
}

func honestEvent() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// awaitEnd gives why the connection ended, once it has.
func (c *client) awaitEnd() <-chan error {
	gone := make(chan error, 1)
	_ = c.socket.SetDeadline(time.Time{})
	go func() { gone <- c.hear(0) }()
	return gone
}

// offer is what a client comes with.
type offer struct {
	memory      shared
	rings, log2 int // of each direction
	event       func() (int, error)
}

// modest is what is always granted.
var modest = offer{rings: 1, log2: 10, event: honestEvent}

// connected makes a client and connects it.
func connected(o orders, with offer) (*client, error) {
	c, err := dial(o)
	if err != nil {
		return nil, err
	}
	if err = c.allocate(with.memory, with.rings, with.log2); err == nil {
		err = c.connect(o, with.event)
	}
	if err != nil {
		c.leave()
		c.free()
		return nil, err
	}
	return c, nil
}

// whileConnected has f do what it likes with a connected client, which is gone then.
func whileConnected(o orders, with offer, f func(c *client) error) error {
	c, err := connected(o, with)
	if err != nil {
		return err
	}
	defer c.free()
	defer c.leave()
	return f(c)
}

// greediest connects with as many and as large rings as the server grants: more than the pod may have, and if that is refused, what
// was granted.
func greediest(o orders, m shared) (c *client, err error) {
	for _, want := range []struct{ rings, log2 int }{{255, 14}, {1, 14}, {1, 10}} {
		if c, err = connected(o, offer{m, want.rings, want.log2, honestEvent}); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// descriptor is what a slot says.
type descriptor struct {
	flags, region  uint16
	length, offset uint32
}

// put writes a slot of a ring.
func (d descriptor) put(ring []byte, i int) {
	at := ring[ringHeader+i*slotSize:]
	binary.LittleEndian.PutUint16(at, d.flags)
	binary.LittleEndian.PutUint16(at[2:], d.region)
	binary.LittleEndian.PutUint32(at[4:], d.length)
	binary.LittleEndian.PutUint32(at[8:], d.offset)
}

// publish gives the server so many slots of a ring beyond those that it has taken, and rings it.
func (c *client) publish(i, slots int) {
	ring := c.ring(true, i)
	binary.LittleEndian.PutUint16(ring[6:], binary.LittleEndian.Uint16(ring[64:])+uint16(slots))
	_, _ = unix.Write(c.events[i], binary.NativeEndian.AppendUint64(nil, 1))
}

// publishAll publishes slots of each ring to the server.
func (c *client) publishAll(slots int) {
	for i := range c.rings {
		c.publish(i, slots)
	}
}

// noise fills bytes at random.
func noise(b []byte, random *rand.Rand) {
	for i := range b {
		b[i] = byte(random.Uint32())
	}
}
