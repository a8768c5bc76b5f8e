package stats

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The header (vlib_stats_shared_header_t). Some clients also read a pointer behind it, which VPP no longer has: it stays 0.
const (
	headerVersion    = 0
	headerBase       = 8
	headerEpoch      = 16
	headerInProgress = 24
	headerDirectory  = 32
	headerSize       = 4096 // with what is left of its page

	layoutVersion = 2 // STAT_SEGMENT_VERSION
)

// A directory is written where the last ones are not, so that a client that is still reading the last one finds it whole.
// The epoch tells the client later that it has been replaced.
const (
	regions    = 3
	regionSize = 16 << 20 // of about 14,000 interfaces; only what is used takes memory
)

// Segment is a stats segment. One goroutine may update it.
type Segment struct {
	file *os.File
	mem  []byte

	boot   time.Time
	beats  uint64
	region int
	now    *directory
}

// NewSegment makes a segment with no interfaces. Clients that get its descriptor cannot write to it or change its size.
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

// Update publishes a reading. If it does not fit into the segment the counters stay as they were.
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
	s.now, s.region = d, (s.region+1)%regions

	store(s.mem, headerInProgress, 1)
	store(s.mem, headerDirectory, base+uint64(d.at))
	store(s.mem, headerEpoch, load(s.mem, headerEpoch)+1)
	store(s.mem, headerInProgress, 0)
	return nil
}

// beat tells clients that somebody still updates the segment.
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
