package vpp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/interface_types"
	"golang.org/x/sys/unix"
)

// Counters is what the dataplane has counted.
type Counters struct {
	Interfaces map[string]Traffic // ours, by name
	Errors     []ErrorCount       // those that have occurred
}

// Traffic is what passed through an interface since it was created, as the dataplane sees it.
type Traffic struct {
	RxPackets, RxBytes uint64 // came from the interface
	TxPackets, TxBytes uint64 // went to it
	RxDrops            uint64 // came from it and were dropped, or were lost on the way in
	TxDrops            uint64 // were to go to it and could not

	LinkUp bool // of a memif: its client is connected
}

// ErrorCount is a counter of a graph node: what the node did with packets other than passing them on. Counters of the
// nodes of single interfaces are summed: interface-output, and TYPE-tx by type of interface.
type ErrorCount struct {
	Node, Reason string
	Count        uint64
}

// Counters reads what the dataplane has counted. The numbers are up to a second old with weft-vswitch, and current with
// VPP. An error of the stats segment wraps ErrStats.
func (c *Client) Counters(ctx context.Context) (*Counters, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Limit)
	defer cancel()
	counted, err := c.stats.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	there, err := c.ports(ctx) // afterwards: what has been deleted by then has no name, and what is new no counters
	if err != nil {
		return nil, err
	}
	all := &Counters{Interfaces: make(map[string]Traffic, len(there.byName)), Errors: counted.errors}
	for name, d := range there.byName {
		i := Index(d.SwIfIndex)
		t := counted.traffic(i, d.InterfaceName)
		if m := there.memifs[i]; m != nil {
			t.LinkUp = m.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
		}
		all.Interfaces[name] = t
	}
	return all, nil
}

// CheckStats reads the stats segment and discards what it says. Its error wraps ErrStats.
func (c *Client) CheckStats(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Limit)
	defer cancel()
	if _, err := c.stats.read(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStats, err)
	}
	return nil
}

// ErrStats means that the dataplane's stats segment cannot be read.
var ErrStats = errors.New("stats segment not readable")

// stats reads the stats segment of whatever dataplane answers on a socket.
type stats struct {
	socket string
	dir    string // for a socket of our own

	mu     sync.Mutex
	mirror *mirror // of the segment that was read last; nil: none
}

// The entries that are read.
const (
	errorsPrefix    = "/err/"
	errorsPattern   = "^/err/"
	countersPattern = "^/if/(names|rx|tx|drops|rx-miss|rx-no-buf|tx-error)$"
)

// read reads the segment. Each time it asks the socket for the segment, so the dataplane may have restarted.
func (s *stats) read(ctx context.Context) (*counted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	segment, err := openSegment(ctx, s.socket)
	if err != nil {
		return nil, err
	}
	defer segment.Close()
	if err := s.follow(int(segment.Fd())); err != nil {
		return nil, err
	}
	if err := s.mirror.copy(ctx, segment); err != nil {
		return nil, err
	}
	entries, err := s.mirror.read(countersPattern, errorsPattern)
	if err != nil {
		return nil, err
	}
	return newCounted(entries), nil
}

// follow makes the mirror one of the segment.
func (s *stats) follow(segment int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(segment, &stat); err != nil {
		return fmt.Errorf("stat stats segment: %w", err)
	}
	if m := s.mirror; m != nil && m.source.Dev == stat.Dev && m.source.Ino == stat.Ino && m.source.Size == stat.Size {
		return nil
	}
	s.closeLocked()
	var err error
	s.mirror, err = newMirror(stat, s.dir)
	return err
}

func (s *stats) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *stats) closeLocked() {
	if s.mirror != nil {
		s.mirror.close()
		s.mirror = nil
	}
}

// counted is what a segment says.
type counted struct {
	names    []adapter.Name
	simple   map[string]adapter.SimpleCounterStat   // by the name below /if
	combined map[string]adapter.CombinedCounterStat // by the name below /if
	errors   []ErrorCount
}

func newCounted(entries []adapter.StatEntry) *counted {
	c := &counted{simple: make(map[string]adapter.SimpleCounterStat), combined: make(map[string]adapter.CombinedCounterStat)}
	for _, e := range entries {
		name := strings.TrimPrefix(string(e.Name), "/if/")
		switch data := e.Data.(type) {
		case adapter.NameStat:
			c.names = data
		case adapter.CombinedCounterStat:
			c.combined[name] = data
		case adapter.SimpleCounterStat:
			if !strings.HasPrefix(name, errorsPrefix) {
				c.simple[name] = data
			}
		}
	}
	c.sumErrors(entries)
	return c
}

// sumErrors sums the errors by node and reason, in the segment's order.
func (c *counted) sumErrors(entries []adapter.StatEntry) {
	interfaces := make(map[string]bool, len(c.names))
	for _, n := range c.names {
		interfaces[string(n)] = true
	}
	at := make(map[[2]string]int)
	for _, e := range entries {
		path, ok := strings.CutPrefix(string(e.Name), errorsPrefix)
		data, simple := e.Data.(adapter.SimpleCounterStat)
		if !ok || !simple {
			continue
		}
		var count uint64
		for thread := range data {
			for _, n := range data[thread] {
				count += uint64(n)
			}
		}
		if count == 0 {
			continue
		}
		node, reason := splitError(path, interfaces)
		key := [2]string{node, reason}
		if i, known := at[key]; known {
			c.errors[i].Count += count
			continue
		}
		at[key] = len(c.errors)
		c.errors = append(c.errors, ErrorCount{node, reason, count})
	}
}

// splitError splits NODE/REASON. The nodes of an interface, whose name may have a slash, stand for those of its kind.
func splitError(path string, interfaces map[string]bool) (node, reason string) {
	for _, side := range []string{"output", "tx"} {
		name, reason, ok := strings.Cut(path, "-"+side+"/")
		if !ok || !interfaces[name] {
			continue
		}
		if side == "output" {
			return "interface-output", reason
		}
		return kindOfInterface(name) + "-tx", reason
	}
	node, reason, _ = strings.Cut(path, "/")
	return node, reason
}

// kindOfInterface is what the dataplane calls an interface of a kind, without its number.
func kindOfInterface(name string) string {
	if strings.HasPrefix(name, "host-") {
		return "host"
	}
	if digit := strings.IndexAny(name, "0123456789"); digit > 0 {
		name = name[:digit]
	}
	return strings.TrimRight(name, "-_")
}

// traffic is what was counted on an interface; nothing if by then the index had another interface.
func (c *counted) traffic(i Index, name string) Traffic {
	if int(i) >= len(c.names) || string(c.names[i]) != name {
		return Traffic{}
	}
	t := Traffic{
		RxDrops: c.simpleOf(i, "drops") + c.simpleOf(i, "rx-miss") + c.simpleOf(i, "rx-no-buf"),
		TxDrops: c.simpleOf(i, "tx-error"),
	}
	t.RxPackets, t.RxBytes = c.combinedOf(i, "rx")
	t.TxPackets, t.TxBytes = c.combinedOf(i, "tx")
	return t
}

// simpleOf sums a counter over all threads.
func (c *counted) simpleOf(i Index, name string) (sum uint64) {
	for _, thread := range c.simple[name] {
		if int(i) < len(thread) {
			sum += uint64(thread[i])
		}
	}
	return sum
}

func (c *counted) combinedOf(i Index, name string) (packets, bytes uint64) {
	for _, thread := range c.combined[name] {
		if int(i) < len(thread) {
			packets += thread[i].Packets()
			bytes += thread[i].Bytes()
		}
	}
	return packets, bytes
}

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
