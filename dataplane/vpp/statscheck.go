package vpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The layout of VPP's stats segment (src/vlib/stats/shared.h), as far as govpp's client reads it.
const (
	segmentBase      = 8
	segmentEpoch     = 16
	segmentBusy      = 24 // in_progress
	segmentDirectory = 32
	segmentErrors    = 40 // of older versions, gone in 25.10
	segmentHeader    = 48

	segmentEntry      = 144
	segmentEntryValue = 8
	segmentEntryName  = 16

	segmentSimple   = 2
	segmentCombined = 3
	segmentNames    = 4
	segmentSymlink  = 6
)

// errSegment means that a stats segment contradicts itself.
var errSegment = errors.New("invalid stats segment")

// checkSegment checks everything that govpp's client follows while it reads a segment: it trusts every pointer, index and
// length, and an invalid one would end the process. It may only read a private copy, which does not change after the check.
func checkSegment(mem []byte) error {
	if len(mem) < segmentHeader {
		return fmt.Errorf("%w: %d bytes", errSegment, len(mem))
	}
	c := segmentCheck{mem: mem, base: binary.LittleEndian.Uint64(mem[segmentBase:]), budget: segmentBudget * len(mem)}
	if inGoHeap(c.base) || inGoHeap(binary.LittleEndian.Uint64(mem[segmentDirectory:])) {
		return fmt.Errorf("%w: mapped where Go's heap is", errSegment)
	}
	at, n, err := c.vector(segmentDirectory, segmentEntry)
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	if at == 0 {
		return fmt.Errorf("%w: no directory", errSegment)
	}
	c.directory, c.entries = at, n
	for i := range n {
		if err := c.entry(at + i*segmentEntry); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// segmentBudget bounds what one reading may copy and step over, in lengths of the segment: entries can share a vector.
const segmentBudget = 8

// inGoHeap reports whether an address may be in Go's heap. govpp keeps two addresses of the dataplane's as Go pointers, and
// the garbage collector ends the process if such a one points into an unused part of the heap. The heap begins at
// 0xc000000000; VPP maps its segment elsewhere.
func inGoHeap(address uint64) bool { return address >= 0xc0<<32 && address < 0xd0<<32 }

type segmentCheck struct {
	mem                []byte
	base               uint64
	directory, entries int
	budget             int
}

// offset resolves the pointer at offset at; ok is false for one that govpp takes for a null pointer.
func (c *segmentCheck) offset(at int) (offset int, ok bool) {
	o := binary.LittleEndian.Uint64(c.mem[at:]) - c.base
	return int(o), o > 0 && o < uint64(len(c.mem)-1)
}

// vector resolves a pointer to a vector of elements of the given size, and checks that all of it is in the segment. A
// null pointer gives offset 0.
func (c *segmentCheck) vector(pointer, size int) (at, n int, err error) {
	at, ok := c.offset(pointer)
	if !ok {
		return 0, 0, nil
	}
	if at < segmentHeader+8 {
		return 0, 0, fmt.Errorf("%w: vector at %d", errSegment, at)
	}
	n = int(binary.LittleEndian.Uint32(c.mem[at-8:]))
	if n > (len(c.mem)-at)/size {
		return 0, 0, fmt.Errorf("%w: vector of %d elements at %d of %d bytes", errSegment, n, at, len(c.mem))
	}
	return at, n, nil
}

func (c *segmentCheck) spend(cost int) error {
	if c.budget -= cost; c.budget < 0 {
		return fmt.Errorf("%w: its vectors are larger than itself", errSegment)
	}
	return nil
}

func (c *segmentCheck) entry(at int) error {
	switch kind := binary.LittleEndian.Uint32(c.mem[at:]); kind {
	case segmentSimple:
		return c.matrix(at+segmentEntryValue, 8)
	case segmentCombined:
		return c.matrix(at+segmentEntryValue, 16)
	case segmentNames:
		return c.matrix(at+segmentEntryValue, 1)
	case segmentSymlink:
		return c.symlink(at)
	}
	return nil
}

// matrix checks a vector of pointers to vectors.
func (c *segmentCheck) matrix(pointer, size int) error {
	at, n, err := c.vector(pointer, 8)
	if err != nil {
		return err
	}
	for i := range n {
		_, length, err := c.vector(at+i*8, size)
		if err == nil {
			err = c.spend(matrixRow + length*size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matrixRow is what govpp allocates for a vector in a vector, beside its elements.
const matrixRow = 24

// symlink checks a link to an element of another entry. govpp follows it once, searches the element from the first one on,
// and takes the highest number for no element at all.
func (c *segmentCheck) symlink(at int) error {
	entry := binary.LittleEndian.Uint32(c.mem[at+segmentEntryValue:])
	element := binary.LittleEndian.Uint32(c.mem[at+segmentEntryValue+4:])
	if uint64(entry) >= uint64(c.entries) || element == ^uint32(0) {
		return fmt.Errorf("%w: link to element %d of entry %d, of %d", errSegment, element, entry, c.entries)
	}
	target := c.directory + int(entry)*segmentEntry
	kind := binary.LittleEndian.Uint32(c.mem[target:])
	if kind == segmentNames {
		return fmt.Errorf("%w: link to names", errSegment)
	}
	if kind != segmentSimple && kind != segmentCombined || !bytes.HasPrefix(c.mem[at+segmentEntryName:], []byte(errorsPrefix)) {
		return nil // govpp does not follow it, or is not asked to
	}
	threads, n, err := c.vector(target+segmentEntryValue, 8)
	if err != nil {
		return err
	}
	for i := range n {
		_, length, err := c.vector(threads+i*8, 1)
		if err == nil {
			err = c.spend(matrixRow + min(int(element), length))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
