package memif

import (
	"fmt"
	"runtime/debug"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// region is one piece of shared memory.
type region struct {
	base    unsafe.Pointer
	size    uint64
	mapping []byte
	sparse  bool // had holes when it came: the pages in them may be accounted to this side
	ringed  bool // has rings of this connection, so that it is not memory that the client uses for other things too
}

// memory is a connection's regions.
type memory struct {
	regions []region
	// guarded: the peer may take pages away under our feet.
	guarded bool
}

// at checks what a descriptor points at. Its bytes are valid as long as the regions are mapped.
func (m *memory) at(d descriptor) (unsafe.Pointer, verdict) {
	if int(d.region) >= len(m.regions) {
		return nil, badRegion
	}
	r := &m.regions[d.region]
	if uint64(d.offset)+uint64(d.length) > r.size {
		return nil, badOffset
	}
	return unsafe.Add(r.base, uintptr(d.offset)), good
}

func (m *memory) holds(address uintptr) bool {
	for i := range m.regions {
		base := uintptr(m.regions[i].base)
		if address >= base && address-base < uintptr(m.regions[i].size) {
			return true
		}
	}
	return false
}

func (m *memory) size() uint64 {
	var sum uint64
	for i := range m.regions {
		sum += m.regions[i].size
	}
	return sum
}

// add maps size bytes of fd, which stays the caller's.
func (m *memory) add(fd int, size uint64) error {
	mapping, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map region of %d bytes: %w", size, err)
	}
	m.regions = append(m.regions, region{base: unsafe.Pointer(unsafe.SliceData(mapping)), size: size, mapping: mapping})
	return nil
}

// isEmptied reports whether the region's pages are given up in the end: the client may keep the memory, and they are ours to pay for.
func (r *region) isEmptied() bool { return r.sparse && r.ringed }

func (m *memory) isEmptied() bool {
	return slices.ContainsFunc(m.regions, func(r region) bool { return r.isEmptied() })
}

func (m *memory) unmap() {
	for i := range m.regions {
		if m.regions[i].isEmptied() {
			_ = unix.Madvise(m.regions[i].mapping, unix.MADV_REMOVE)
		}
		if m.regions[i].mapping != nil {
			_ = unix.Munmap(m.regions[i].mapping)
		}
	}
	m.regions = nil
}

// recoverFault is deferred around what touches guarded memory: a fault in it ends the connection, any other panic goes
// on. old is what debug.SetPanicOnFault was.
func (c *Conn) recoverFault(old bool) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if fault, ok := r.(interface{ Addr() uintptr }); ok && c.memory.holds(fault.Addr()) {
		c.breakOff(ErrFault)
		return
	}
	panic(r) //nolint:forbidigo // not ours: it was on its way before
}
