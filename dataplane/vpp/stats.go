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

// Counters are the counters of the dataplane.
type Counters struct {
	Interfaces map[string]Traffic // of our interfaces, by name
	Errors     []ErrorCount       // without zero counters
	// refused clients of memifs, which Errors sums; the node is the interface. Only weft-vswitch counts them
	Refused []ErrorCount
}

// Traffic counts the packets of an interface since its creation, from the view of the dataplane.
type Traffic struct {
	RxPackets, RxBytes uint64 // received from the interface
	TxPackets, TxBytes uint64 // sent to it
	RxDrops            uint64 // received and dropped, or lost before
	TxDrops            uint64 // not sent

	LinkUp bool // of a memif: its client is connected
}

// ErrorCount is an error counter of a graph node. The counters of nodes of single interfaces are summed:
// interface-output, and TYPE-tx by type of interface.
type ErrorCount struct {
	Node, Reason string
	Count        uint64
}

// Statistics reads the counters of the dataplane.
type Statistics struct{ c *Client }

// Counters reads the counters. They are up to a second old with weft-vswitch, and current with VPP. An error of the
// stats segment wraps ErrStats.
func (s Statistics) Counters(ctx context.Context) (*Counters, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.options.Limit)
	defer cancel()
	counted, err := s.c.stats.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	there, err := s.c.ports(ctx) // afterwards: deleted interfaces have no name then, and new ones have no counters
	if err != nil {
		return nil, err
	}
	all := &Counters{Interfaces: make(map[string]Traffic, len(there.byName)), Errors: counted.errors}
	for name, d := range there.byName {
		i := Index(d.SwIfIndex)
		t := counted.traffic(i, d.InterfaceName)
		if m := there.memifs.byIndex[i]; m != nil {
			t.LinkUp = m.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
		}
		all.Interfaces[name] = t
		for _, r := range counted.refused {
			if r.Node == d.InterfaceName {
				all.Refused = append(all.Refused, ErrorCount{name, r.Reason, r.Count})
			}
		}
	}
	return all, nil
}

// Check checks that the stats segment is readable. Its error wraps ErrStats.
func (s Statistics) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.c.options.Limit)
	defer cancel()
	if _, err := s.c.stats.read(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStats, err)
	}
	return nil
}

// ErrStats means that the dataplane's stats segment cannot be read.
var ErrStats = errors.New("stats segment not readable")

// stats reads the stats segment of the dataplane at a socket.
type stats struct {
	socket string
	dir    string // for the mirror's socket

	mu     sync.Mutex
	mirror *mirror // of the last segment, or nil
}

const (
	errorsPrefix    = "/err/"
	errorsPattern   = "^/err/"
	countersPattern = "^/if/(names|rx|tx|drops|rx-miss|rx-no-buf|tx-error)$"
)

func (s *stats) read(ctx context.Context) (*counted, error) {
	entries, err := s.entries(ctx, countersPattern, errorsPattern)
	if err != nil {
		return nil, err
	}
	return newCounted(entries), nil
}

// entries reads entries of the segment. It gets the segment from the socket each time, because the dataplane may have
// restarted.
func (s *stats) entries(ctx context.Context, patterns ...string) ([]adapter.StatEntry, error) {
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
	return s.mirror.read(patterns...)
}

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

type counted struct {
	names    []adapter.Name
	simple   map[string]adapter.SimpleCounterStat   // by the name below /if
	combined map[string]adapter.CombinedCounterStat // by the name below /if
	errors   []ErrorCount
	refused  []ErrorCount // clients of memifs; the node is the dataplane's name of the interface
}

func newCounted(entries []adapter.StatEntry) *counted {
	c := &counted{
		simple:   make(map[string]adapter.SimpleCounterStat),
		combined: make(map[string]adapter.CombinedCounterStat),
	}
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
		if name, reason, ok := strings.Cut(path, "-control/"); ok && interfaces[name] {
			c.refused = append(c.refused, ErrorCount{name, reason, count})
			path = kindOfInterface(name) + "-control/" + reason
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

// splitError splits NODE/REASON. It replaces a node of one interface, with a name that may have a slash, by the node of
// its kind.
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

// kindOfInterface returns the dataplane's name of an interface without its number.
func kindOfInterface(name string) string {
	if strings.HasPrefix(name, "host-") {
		return "host"
	}
	if digit := strings.IndexAny(name, "0123456789"); digit > 0 {
		name = name[:digit]
	}
	return strings.TrimRight(name, "-_")
}

// traffic returns the counters of an interface; zero if another interface had the index.
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

// The part of the layout of VPP's stats segment (src/vlib/stats/shared.h) that govpp's client reads.
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

var errSegment = errors.New("invalid stats segment")

// checkSegment checks every pointer, index and length that govpp's client follows: an invalid one would end the
// process. mem must be a private copy, which does not change after the check.
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
	c.directory = at
	c.entries = n
	for i := range n {
		if err := c.entry(at + i*segmentEntry); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// segmentBudget bounds the work of one reading, in lengths of the segment: entries can share a vector.
const segmentBudget = 8

// inGoHeap reports whether an address may be in Go's heap, which begins at 0xc000000000. govpp keeps two addresses of
// the dataplane as Go pointers, and the garbage collector ends the process if one points into an unused part of the
// heap. VPP maps its segment elsewhere.
func inGoHeap(address uint64) bool { return address >= 0xc0<<32 && address < 0xd0<<32 }

type segmentCheck struct {
	mem                []byte
	base               uint64
	directory, entries int
	budget             int
}

// offset resolves the pointer at offset at; ok is false for a pointer that govpp treats as null.
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
	kind := binary.LittleEndian.Uint32(c.mem[at:])
	if kind == segmentSymlink {
		return c.symlink(at)
	}
	if size, isMatrix := elementSizes[kind]; isMatrix {
		return c.matrix(at+segmentEntryValue, size, func(length int) int { return length * size })
	}
	return nil
}

// elementSizes are the sizes of the elements of matrices by the type of entry.
var elementSizes = map[uint32]int{segmentSimple: 8, segmentCombined: 16, segmentNames: 1}

// matrix checks a vector of pointers to vectors, each with the given cost.
func (c *segmentCheck) matrix(pointer, size int, cost func(length int) int) error {
	at, n, err := c.vector(pointer, 8)
	if err != nil {
		return err
	}
	for i := range n {
		_, length, err := c.vector(at+i*8, size)
		if err == nil {
			err = c.spend(matrixRow + cost(length))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matrixRow is the size of govpp's allocation for a vector in a vector, without its elements.
const matrixRow = 24

// symlink checks a link to an element of another entry. govpp follows it once, searches linearly for the element, and
// treats the highest number as no element.
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
	if kind != segmentSimple && kind != segmentCombined ||
		!bytes.HasPrefix(c.mem[at+segmentEntryName:], []byte(errorsPrefix)) {
		return nil // govpp does not follow it, or is not asked to
	}
	return c.matrix(target+segmentEntryValue, 1, func(length int) int { return min(int(element), length) })
}
