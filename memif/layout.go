package memif

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// layout is a client's memory: one region, in it all rings, those to the server first, then their buffers in the same
// order.
type layout struct {
	toServer, toClient int
	log2               uint8
	bufferSize         uint32
}

func (l layout) rings() int { return l.toServer + l.toClient }

func (l layout) ringOffset(i int) uint64 { return uint64(i) * ringBytes(1<<l.log2) }

func (l layout) bufferOffset(i int) uint64 {
	return l.ringOffset(l.rings()) + uint64(i)<<l.log2*uint64(l.bufferSize)
}

func (l layout) size() uint64 { return l.bufferOffset(l.rings()) }

// allocate makes the region and returns its descriptor, sealed against shrinking.
func (l layout) allocate(m *memory) (int, error) {
	fd, err := unix.MemfdCreate("memif region 0", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make region: %w", err)
	}
	err = unix.Ftruncate(fd, int64(l.size()))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err == nil {
		err = m.add(fd, l.size())
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("make region of %d bytes: %w", l.size(), err)
	}
	return fd, nil
}

// newRing writes ring i into fresh memory at base. What the client receives into is the server's from the beginning.
func (l layout) newRing(base unsafe.Pointer, i int) ring {
	r := newRingAt(unsafe.Add(base, uintptr(l.ringOffset(i))), l.log2)
	*r.cookie() = ringCookie
	for slot := range uint32(r.size) {
		offset := l.bufferOffset(i) + uint64(slot)*uint64(l.bufferSize)
		r.place(uint16(slot), descriptor{length: l.bufferSize, offset: uint32(offset)})
	}
	if i >= l.toServer {
		r.maskInterrupts(true)
		r.setHead(r.size)
	}
	return r
}

// addQueues makes the client's queues over the region.
func (l layout) addQueues(c *Conn, eventfds []int, maxPacket int) {
	base := c.memory.regions[0].base
	for i := range l.toServer {
		c.tx = append(c.tx, &TxQueue{
			ring: l.newRing(base, i), memory: &c.memory, conn: c, maxPacket: uint32(maxPacket), eventfd: eventfds[i],
			bufferSize: l.bufferSize, buffers: unsafe.Add(base, uintptr(l.bufferOffset(i))),
		})
	}
	for i := l.toServer; i < l.rings(); i++ {
		c.rx = append(c.rx, &RxQueue{
			ring: l.newRing(base, i), memory: &c.memory, conn: c, maxPacket: uint32(maxPacket), eventfd: eventfds[i],
			bufferSize: l.bufferSize, segments: make([][]byte, 0, 1<<l.log2),
		})
	}
}
