// Package stats serves counters in a stats segment as VPP 25.10 lays it out, so that VPP's clients can read it.
//
// A segment is a memfd that every client maps; clients get its descriptor over a unix socket. It begins with a header
// that points to the directory, a vector of named entries. An entry holds a value, points to a vector of counters for
// each thread, points to a vector of names, or is a link to one element of another entry's vectors. Pointers are
// addresses in the writer's memory: a client subtracts the header's base. The layout is defined by VPP's
// src/vlib/stats/shared.h and src/vppinfra/vec_bootstrap.h.
package stats

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The header (vlib_stats_shared_header_t). Some clients also read the pointer after it that old versions of VPP had: it
// stays 0.
const (
	headerVersion    = 0
	headerBase       = 8
	headerEpoch      = 16
	headerInProgress = 24
	headerDirectory  = 32
	headerSize       = 4096 // with the rest of its page

	layoutVersion = 2 // STAT_SEGMENT_VERSION
)

// A new directory goes into the region that was written longest ago, so a client can finish reading the previous one.
// The epoch then tells the client that the directory was replaced.
const (
	regions    = 3
	regionSize = 32 << 20 // for about 14,000 interfaces and a million rules of ACLs; unused pages take no memory
)

// Reading holds the counters of one collection.
type Reading struct {
	Workers    int         // forwarding threads
	Interfaces []Interface // each index once
	Errors     []Error     // each name once, always in the same order
	ACLs       []ACL       // each index once, in the same order
	Violations []Combined  // of policers, by index
}

// Interface holds the totals of one interface since its creation.
type Interface struct {
	Index uint32
	Name  string

	Rx, Tx       Combined
	Drops, Punts uint64
	IP4, IP6     uint64
	TxErrors     uint64
}

// Combined counts packets and their bytes.
type Combined struct{ Packets, Bytes uint64 }

// ACL holds the packets and bytes for which each rule of an ACL decided.
type ACL struct {
	Index   uint32
	Matches []Combined // by rule
}

// Error is a counter of a graph node, as VPP's "show errors" lists them.
type Error struct {
	Name  string // node, slash, reason
	Count uint64
}

// Segment is a stats segment. One goroutine may update it.
type Segment struct {
	file *os.File
	mem  []byte

	boot   time.Time
	beats  uint64
	region int
	now    *directory
}

// NewSegment creates a segment without interfaces. Clients that receive its descriptor can neither write to it nor
// resize it.
func NewSegment() (_ *Segment, err error) {
	fd, err := unix.MemfdCreate("stat segment", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create stats segment: %w", err)
	}
	s := &Segment{file: os.NewFile(uintptr(fd), "stat segment"), boot: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	const size = headerSize + regions*regionSize
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, fmt.Errorf("size stats segment: %w", err)
	}
	if s.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map stats segment: %w", err)
	}
	// The mapping above is the last writable one.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal stats segment: %w", err)
	}
	store(s.mem, headerVersion, layoutVersion)
	store(s.mem, headerBase, base)
	if err := s.Update(&Reading{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Update publishes a reading. If the reading does not fit into the segment, the counters keep their values.
func (s *Segment) Update(r *Reading) error {
	s.beats++
	if s.now.fits(r) {
		s.now.fill(s.mem, r)
		s.beat()
		return nil
	}
	err := s.replace(r)
	s.beat()
	return err
}

// replace publishes a directory for the interfaces and errors of r.
func (s *Segment) replace(r *Reading) error {
	begin := headerSize + s.region*regionSize
	d, err := build(&arena{mem: s.mem, next: begin, end: begin + regionSize}, r, uint64(s.boot.Unix()))
	if err != nil {
		return err
	}
	d.fill(s.mem, r)
	store(s.mem, d.at+heartbeat*entrySize+entryValue, s.beats)
	s.now = d
	s.region = (s.region + 1) % regions

	store(s.mem, headerInProgress, 1)
	store(s.mem, headerDirectory, base+uint64(d.at))
	store(s.mem, headerEpoch, load(s.mem, headerEpoch)+1)
	store(s.mem, headerInProgress, 0)
	return nil
}

// beat publishes the heartbeat, which tells clients that the segment is still updated.
func (s *Segment) beat() {
	if s.now != nil {
		store(s.mem, s.now.at+heartbeat*entrySize+entryValue, s.beats)
	}
}

// Close releases the segment. Clients keep what they have mapped.
func (s *Segment) Close() error {
	err := s.file.Close()
	if s.mem != nil {
		err = errors.Join(err, unix.Munmap(s.mem))
		s.mem = nil
	}
	return err
}
