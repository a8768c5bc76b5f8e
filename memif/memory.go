package memif

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// region is one piece of shared memory.
type region struct {
	base    unsafe.Pointer
	size    uint64
	mapping []byte
	file    int  // its descriptor, which is the connection's
	sparse  bool // had holes when it came: the pages in them may be accounted to this side
	ringed  bool // has rings of this connection, so that it is not memory that the client uses for other things too
}

// memory is a connection's regions.
type memory struct {
	regions []region
	// guarded memory is not sealed: the peer may remove pages at any time.
	guarded bool
}

// at checks and returns the target of a descriptor. Its bytes are valid as long as the regions are mapped.
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

// add maps size bytes of fd, which stays the caller's but is needed as long as the region.
func (m *memory) add(fd int, size uint64) error {
	mapping, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map region of %d bytes: %w", size, err)
	}
	m.regions = append(m.regions, region{
		base:    unsafe.Pointer(unsafe.SliceData(mapping)),
		size:    size,
		mapping: mapping,
		file:    fd,
	})
	return nil
}

// isEmptied reports whether the region's pages are freed at the end: the client may keep the memory, and the pages are
// accounted to this process.
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

// ringAt checks and returns a ring of the client.
func (m *memory) ringAt(r newRing) (ring, error) {
	at, verdict := m.at(descriptor{region: r.region, offset: r.offset, length: uint32(ringBytes(1 << r.log2))})
	switch {
	case verdict == badRegion:
		return ring{}, refusal("ring in unknown region")
	case verdict != good:
		return ring{}, refusal("ring out of region")
	case uintptr(at)%ringAlignment != 0:
		return ring{}, refusal("ring not aligned")
	}
	found := newRingAt(at, r.log2)
	if *found.cookie() != ringCookie {
		return ring{}, refusal("wrong cookie on ring")
	}
	m.regions[r.region].ringed = true
	return found, nil
}

// locate completes the description of a ring with its place.
func (m *memory) locate(at ring, r PassedRing) PassedRing {
	r.Log2 = uint8(bits.Len(uint(at.size)) - 1)
	for i := range m.regions {
		base := uintptr(m.regions[i].base)
		if offset := uintptr(at.header) - base; uintptr(at.header) >= base &&
			uint64(offset) < m.regions[i].size {
			r.Region = uint16(i)
			r.Offset = uint32(offset)
		}
	}
	return r
}

// checkRegion validates memory that a client offers, and seals it against shrinking. sealed means that access cannot
// fault. sparse is the number of bytes without pages, which are accounted to the process that touches them first. The
// seals are read first, because that does not involve the file system, which may be the client's (FUSE) and never
// answer.
func checkRegion(fd int, size uint64) (sealed bool, sparse uint64, err error) {
	seals, ok := sealsOf(fd)
	if !ok {
		return false, 0, refusal("region is not shared memory")
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	// After sealing the size cannot shrink.
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, 0, fmt.Errorf("measure region: %w", err)
	}
	if stat.Size < 0 || uint64(stat.Size) < size {
		return false, 0, refusal("region is shorter than announced")
	}
	return err == nil && !isHuge(fd), size - min(size, uint64(stat.Blocks)*blockSize), nil
}

// blockSize is the unit of Stat_t.Blocks, in bytes.
const blockSize = 512

// isHuge reports whether fd has huge pages, which may run out when a hole is touched.
func isHuge(fd int) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	return err != nil || fs.Type != unix.TMPFS_MAGIC
}

// isEventfd reports whether fd is an eventfd, without an operation on it.
func isEventfd(fd int) bool {
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && kind == "anon_inode:[eventfd]"
}

// sealsOf returns the seals of shared memory; ok is false for other files.
func sealsOf(fd int) (seals int, ok bool) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return seals, err == nil
}
