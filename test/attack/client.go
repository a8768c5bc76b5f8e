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

// client is a memif client that can send any message.
type client struct {
	socket *net.UnixConn
	memory []byte
	fd     int // of memory; -1 = none
	events []int
	slots  int // of each ring
	rings  int // of each direction
}

// dial connects to the target's socket and sends nothing.
func dial(t target) (*client, error) {
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: t.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	_ = socket.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{socket: socket, fd: -1}, nil
}

// leave closes the connection and keeps the memory.
func (c *client) leave() {
	_ = c.socket.Close()
	for _, fd := range c.events {
		_ = unix.Close(fd)
	}
	c.events = nil
}

// free releases the memory.
func (c *client) free() {
	if c.memory != nil {
		_ = unix.Munmap(c.memory)
	}
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.memory = nil
	c.fd = -1
}

// send sends a message, with a descriptor if fd is not negative.
func (c *client) send(kind uint16, fd int, fill func(b []byte)) error {
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

// receive reads messages until one of the given kind; an error includes the server's reason.
func (c *client) receive(kind uint16) error {
	b := make([]byte, messageSize)
	for {
		n, err := c.socket.Read(b)
		switch {
		case err != nil:
			return err
		case n < 2:
			return errors.New("connection closed by the server")
		}
		switch binary.LittleEndian.Uint16(b) {
		case kind:
			return nil
		case disconnectMessage:
			return fmt.Errorf("disconnected: %s", bytes.TrimRight(b[6:6+95], "\x00"))
		}
	}
}

func (c *client) initiate(t target) error {
	return c.send(initMessage, -1, func(b []byte) {
		binary.LittleEndian.PutUint16(b[2:], 2<<8)
		binary.LittleEndian.PutUint32(b[4:], 1)
		copy(b[9:33], t.Secret)
		copy(b[33:], "attacker")
	})
}

// shared describes the memory that a client shares.
type shared struct {
	size       int
	unsealable bool
	paid       bool // all pages are allocated
}

// allocate makes the memory, with room for the rings at its beginning.
func (c *client) allocate(m shared, rings, log2 int) error {
	flags := unix.MFD_CLOEXEC
	if !m.unsealable {
		flags |= unix.MFD_ALLOW_SEALING
	}
	c.rings = rings
	c.slots = 1 << log2
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

// ringSpace returns the size of the rings of one direction.
func (c *client) ringSpace() int { return c.rings * (ringHeader + c.slots*slotSize) }

// ring returns the memory of one ring.
func (c *client) ring(toServer bool, i int) []byte {
	size := ringHeader + c.slots*slotSize
	at := i * size
	if !toServer {
		at += c.ringSpace()
	}
	return c.memory[at : at+size]
}

// connect makes the whole handshake, as a correct client does. It needs the memory.
func (c *client) connect(t target, event func() (int, error)) error {
	err := c.initiate(t)
	if err == nil {
		err = c.send(addRegionMessage, c.fd, func(b []byte) {
			binary.LittleEndian.PutUint64(b[4:], uint64(len(c.memory)))
		})
	}
	for _, toServer := range []bool{true, false} {
		for i := range c.rings {
			if err != nil {
				return c.disconnectReason(err)
			}
			ring := c.ring(toServer, i)
			binary.LittleEndian.PutUint32(ring, cookie)
			err = c.addRing(toServer, i, event)
		}
	}
	if err == nil {
		err = c.send(connectMessage, -1, nil)
	}
	if err != nil {
		return c.disconnectReason(err)
	}
	return c.receive(connectedMessage)
}

// disconnectReason adds the reason of the server's disconnect message.
func (c *client) disconnectReason(err error) error {
	return errors.Join(err, c.receive(connectedMessage))
}

func (c *client) addRing(toServer bool, i int, event func() (int, error)) error {
	fd, err := event()
	if err != nil {
		return err
	}
	c.events = append(c.events, fd)
	ring := c.ring(toServer, i)
	return c.send(addRingMessage, fd, func(b []byte) {
		if toServer {
			b[2] = 1
		}
		binary.LittleEndian.PutUint16(b[4:], uint16(i))
		binary.LittleEndian.PutUint32(b[8:],
			uint32(uintptr(unsafe.Pointer(&ring[0]))-uintptr(unsafe.Pointer(&c.memory[0]))))
		for 1<<b[12] < c.slots {
			b[12]++
		}
	})
}

func newEventfd() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// awaitEnd sends the error with which the connection ends.
func (c *client) awaitEnd() <-chan error {
	gone := make(chan error, 1)
	_ = c.socket.SetDeadline(time.Time{})
	go func() { gone <- c.receive(0) }()
	return gone
}

// offer is a client's memory and rings.
type offer struct {
	memory      shared
	rings, log2 int // of each direction
	event       func() (int, error)
}

// modest is an offer that the server always accepts.
var modest = offer{rings: 1, log2: 10, event: newEventfd}

// connected makes a client and connects it.
func connected(t target, with offer) (*client, error) {
	c, err := dial(t)
	if err != nil {
		return nil, err
	}
	if err = c.allocate(with.memory, with.rings, with.log2); err == nil {
		err = c.connect(t, with.event)
	}
	if err != nil {
		c.leave()
		c.free()
		return nil, err
	}
	return c, nil
}

// whileConnected runs f with a connected client and then closes the client.
func whileConnected(t target, with offer, f func(c *client) error) error {
	c, err := connected(t, with)
	if err != nil {
		return err
	}
	defer c.free()
	defer c.leave()
	return f(c)
}

// greediest connects with as many and as large rings as the server accepts.
func greediest(t target, m shared) (c *client, err error) {
	for _, want := range []struct{ rings, log2 int }{{255, 14}, {1, 14}, {1, 10}} {
		if c, err = connected(t, offer{m, want.rings, want.log2, newEventfd}); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// descriptor is the content of a ring's slot.
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

// publish gives the server slots of a ring beyond those that it has taken, and signals the ring's eventfd.
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

// randomise fills b with random bytes.
func randomise(b []byte, random *rand.Rand) {
	for i := range b {
		b[i] = byte(random.Uint32())
	}
}
