package stats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Types of directory entries (stat_directory_type_t).
const (
	typeScalar   = 1
	typeSimple   = 2
	typeCombined = 3
	typeNames    = 4
	typeSymlink  = 6
)

// An entry of the directory (vlib_stats_entry_t): type, padding, value or pointer, name.
const (
	entrySize   = 144
	entryValue  = 8
	entryName   = 16
	longestName = 127 // a zero ends it
)

// The first entries have fixed places (stat_segment_counter_t): VPP's client looks for the heartbeat in the first.
const (
	heartbeat = iota
	lastClear
	bootTime
	workers
)

// highestIndex bounds the vectors that are indexed by interface.
const highestIndex = 1 << 16

// simple lists the counters with one number per interface, under their VPP names below /if.
var simple = []struct {
	name string
	of   func(*Interface) uint64
}{
	{"drops", func(i *Interface) uint64 { return i.Drops }},
	{"punt", func(i *Interface) uint64 { return i.Punts }},
	{"ip4", func(i *Interface) uint64 { return i.IP4 }},
	{"ip6", func(i *Interface) uint64 { return i.IP6 }},
	{"tx-error", func(i *Interface) uint64 { return i.TxErrors }},
}

// combined lists the counters of packets and bytes.
var combined = []struct {
	name string
	of   func(*Interface) Combined
}{
	{"rx", func(i *Interface) Combined { return i.Rx }},
	{"tx", func(i *Interface) Combined { return i.Tx }},
}

// directory is a layout of the segment for one set of interfaces and errors, with the offsets of the counters.
type directory struct {
	at         int // offset of the vector of entries
	interfaces []named
	errors     []string
	acls       []aclVector
	simple     []int // offsets of the vectors, in the order of simple
	combined   []int
	errorsAt   int

	policers   int // number of indexes
	policersAt int
}

// aclVector locates the counters of the rules of an ACL.
type aclVector struct {
	index uint32
	rules int
	at    int
}

type named struct {
	index uint32
	name  string
}

// fits reports whether the reading has the same interfaces, errors and ACLs as the directory.
func (d *directory) fits(r *Reading) bool {
	return d != nil &&
		slices.EqualFunc(d.interfaces, r.Interfaces, func(n named, i Interface) bool {
			return n == named{i.Index, i.Name}
		}) &&
		slices.EqualFunc(d.errors, r.Errors, func(name string, e Error) bool { return name == e.Name }) &&
		d.policers == len(r.Violations) &&
		slices.EqualFunc(d.acls, r.ACLs, func(v aclVector, a ACL) bool {
			return v.index == a.Index && v.rules == len(a.Matches)
		})
}

// build lays out a directory for the interfaces and errors of a reading. The arena has no readers yet.
func build(a *arena, r *Reading, boot uint64) (*directory, error) {
	d := &directory{}
	width := 0 // length of the vectors that are indexed by interface
	for _, i := range r.Interfaces {
		if i.Index >= highestIndex {
			return nil, fmt.Errorf("interface %s has index %d, the highest is %d", i.Name, i.Index, highestIndex-1)
		}
		width = max(width, int(i.Index)+1)
		d.interfaces = append(d.interfaces, named{i.Index, i.Name})
	}
	for _, e := range r.Errors {
		d.errors = append(d.errors, e.Name)
	}
	perInterface := len(simple) + len(combined)
	w := &entries{arena: a}
	w.at = a.vector(workers+1+1+perInterface+1+1+len(d.errors)+perInterface*len(d.interfaces)+len(r.ACLs), entrySize)
	d.at = w.at
	w.scalar("/sys/heartbeat", 0)
	w.scalar("/sys/last_stats_clear", 0)
	w.scalar("/sys/boottime", boot)
	w.scalar("/sys/num_worker_threads", 0)
	w.names("/if/names", d.interfaces, width)
	first := w.n
	for _, c := range simple {
		d.simple = append(d.simple, w.counters("/if/"+c.name, typeSimple, width, 8))
	}
	for _, c := range combined {
		d.combined = append(d.combined, w.counters("/if/"+c.name, typeCombined, width, 16))
	}
	vector := w.n
	d.errorsAt = w.counters("/node/errors", typeSimple, len(d.errors), 8)
	for i, name := range d.errors {
		w.link("/err/"+name, vector, i)
	}
	w.links(d.interfaces, first)
	if d.policers = len(r.Violations); d.policers > 0 {
		d.policersAt = w.counters("/net/policer/violate", typeCombined, d.policers, 16)
	}
	for _, l := range r.ACLs {
		at := w.counters(fmt.Sprintf("/acl/%d/matches", l.Index), typeCombined, len(l.Matches), 16)
		d.acls = append(d.acls, aclVector{l.Index, len(l.Matches), at})
	}
	if a.full {
		return nil, fmt.Errorf("%w: %d interfaces", errFull, len(r.Interfaces))
	}
	return d, nil
}

// fill stores the counters of a reading. The reading must fit the directory.
func (d *directory) fill(mem []byte, r *Reading) {
	store(mem, d.at+workers*entrySize+entryValue, uint64(r.Workers))
	for n := range r.Interfaces {
		i := &r.Interfaces[n]
		for c, at := range d.simple {
			store(mem, at+int(i.Index)*8, simple[c].of(i))
		}
		for c, at := range d.combined {
			both := combined[c].of(i)
			store(mem, at+int(i.Index)*16, both.Packets)
			store(mem, at+int(i.Index)*16+8, both.Bytes)
		}
	}
	for n, v := range d.acls {
		for rule, m := range r.ACLs[n].Matches {
			store(mem, v.at+rule*16, m.Packets)
			store(mem, v.at+rule*16+8, m.Bytes)
		}
	}
	for n, v := range r.Violations {
		store(mem, d.policersAt+n*16, v.Packets)
		store(mem, d.policersAt+n*16+8, v.Bytes)
	}
	for n, e := range r.Errors {
		store(mem, d.errorsAt+n*8, e.Count)
	}
}

// entries writes the directory's entries one after the other.
type entries struct {
	*arena
	at, n int
}

func (w *entries) entry(name string, kind uint32, value uint64) {
	if w.full {
		return
	}
	e := w.mem[w.at+w.n*entrySize:][:entrySize]
	binary.LittleEndian.PutUint32(e, kind)
	binary.LittleEndian.PutUint64(e[entryValue:], value)
	copy(e[entryName:entryName+longestName], name)
	w.n++
}

func (w *entries) scalar(name string, value uint64) { w.entry(name, typeScalar, value) }

func (w *entries) link(name string, entry, element int) {
	w.entry(name, typeSymlink, uint64(entry)|uint64(element)<<32)
}

// links writes a link for each counter of each interface, as VPP does: /interfaces/NAME/COUNTER, where a slash in the
// name becomes an underscore. The counters' entries begin at first.
func (w *entries) links(interfaces []named, first int) {
	for _, i := range interfaces {
		prefix := "/interfaces/" + strings.ReplaceAll(i.name, "/", "_") + "/"
		for c := range simple {
			w.link(prefix+simple[c].name, first+c, int(i.index))
		}
		for c := range combined {
			w.link(prefix+combined[c].name, first+len(simple)+c, int(i.index))
		}
	}
}

// counters writes an entry with counters of one thread (readings are sums over all threads) and returns the offset of
// the counters.
func (w *entries) counters(name string, kind uint32, n, size int) int {
	threads := w.vector(1, 8)
	at := w.vector(n, size)
	w.pointer(threads, at)
	w.entry(name, kind, base+uint64(threads))
	return at
}

// names writes the names by index. As in VPP, the name of a deleted interface is "deleted".
func (w *entries) names(entry string, interfaces []named, width int) {
	vector := w.vector(width, 8)
	deleted := w.text("deleted")
	for i := range width {
		w.pointer(vector+i*8, deleted)
	}
	for _, i := range interfaces {
		w.pointer(vector+int(i.index)*8, w.text(i.name))
	}
	w.entry(entry, typeNames, base+uint64(vector))
}

// base is the address that pointers in the segment are relative to. Clients subtract it, so any value would do; this
// one tells a client nothing about the writer's memory.
const base = 1 << 36

// errFull means that the directory does not fit into its region of the segment.
var errFull = errors.New("stats segment is full")

// arena allocates vectors in one region of the segment. When the region is full, it sets full and writes nothing more.
type arena struct {
	mem       []byte // the whole segment
	next, end int
	full      bool
}

// A header of 8 bytes right before the elements of a vector holds its length (vec_header_t).
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

// store writes a number atomically: clients may be reading it.
func store(mem []byte, at int, value uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[at : at+8][0])), value)
}

func load(mem []byte, at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&mem[at : at+8][0])))
}
