package stats

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"
)

// base is the address that pointers in the segment are relative to. Clients subtract it, so any value would do; this one
// tells a client nothing about the writer's memory.
const base = 1 << 36

// errFull means that the directory has outgrown its share of the segment.
var errFull = errors.New("stats segment is full")

// arena hands out a part of the segment from its start. Running out of it is recorded, and writes nothing.
type arena struct {
	mem       []byte // the whole segment
	next, end int
	full      bool
}

// A vector's length stands in a header of 8 bytes right before its elements (vec_header_t).
const (
	vectorHeader    = 8
	vectorAlignment = 64
)

// vector allocates a vector of n zeroed elements and returns the offset of the first one.
func (a *arena) vector(n, size int) int {
	at := (a.next + vectorHeader + vectorAlignment - 1) &^ (vectorAlignment - 1)
	if a.full || n*size > a.end-at {
		a.full = true
		return 0
	}
	clear(a.mem[a.next : at+n*size])
	header := a.mem[at-vectorHeader : at]
	binary.LittleEndian.PutUint32(header, uint32(n))
	header[4] = vectorHeader / 8 // size of the header in units of 8 bytes
	header[5] = 6                // alignment, log2
	a.next = at + n*size
	return at
}

// text allocates a vector with the bytes of s and a final zero.
func (a *arena) text(s string) int {
	at := a.vector(len(s)+1, 1)
	if !a.full {
		copy(a.mem[at:], s)
	}
	return at
}

// pointer stores the address of the byte at offset to.
func (a *arena) pointer(at, to int) {
	if !a.full {
		store(a.mem, at, base+uint64(to))
	}
}

// store writes a number that clients may be reading.
func store(mem []byte, at int, value uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[at : at+8][0])), value)
}

func load(mem []byte, at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&mem[at : at+8][0])))
}
