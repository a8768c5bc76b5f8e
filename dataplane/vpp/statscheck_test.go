package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// snapshot is a segment of weft-vswitch, truncated to its used part.
func snapshot(t testing.TB) []byte {
	t.Helper()
	socket := filepath.Join(shortDir(t), "stats.sock")
	defer newSource(t, socket, oneInterface)()
	segment, err := openSegment(context.Background(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	info, err := segment.Stat()
	if err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, info.Size())
	if _, err := segment.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	at := binary.LittleEndian.Uint64(whole[segmentDirectory:]) - binary.LittleEndian.Uint64(whole[segmentBase:])
	begin := int(at) &^ 4095 // the region that is used: moved to the front, behind the header
	mem := slices.Concat(whole[:4096], whole[begin:begin+16<<10])
	binary.LittleEndian.PutUint64(mem[segmentBase:], binary.LittleEndian.Uint64(mem[segmentBase:])+uint64(begin)-4096)
	if err := checkSegment(mem); err != nil {
		t.Fatal("the segment itself:", err)
	}
	return mem
}

// reread lets govpp's client read what the check accepted. It ends the process where the check is wrong.
func reread(t testing.TB, m *mirror, mem []byte) (*counted, error) {
	t.Helper()
	copy(m.mem, mem)
	binary.LittleEndian.PutUint64(m.mem[segmentErrors:], 0)
	binary.LittleEndian.PutUint64(m.mem[segmentBusy:], 0)
	if err := checkSegment(m.mem); err != nil {
		return nil, err
	}
	entries, err := m.read() // all entries, more than are ever asked for
	if err != nil {
		return nil, err
	}
	return newCounted(entries), nil
}

func newTestMirror(t testing.TB, size int) *mirror {
	t.Helper()
	m, err := newMirror(unix.Stat_t{Size: int64(size)}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// entryOf finds an entry by name.
func entryOf(t testing.TB, mem []byte, name string) []byte {
	t.Helper()
	at := strings.Index(string(mem), "\x00"+name+"\x00")
	if at < 0 {
		t.Fatal("no entry", name)
	}
	return mem[at+1-segmentEntryName:][:segmentEntry]
}

// lies are damages of a segment that govpp's client would not survive.
var lies = []struct {
	rule  string
	spoil func(t *testing.T, mem []byte)
}{
	{
		"directory longer than the segment",
		func(_ *testing.T, mem []byte) { put32(mem[pointed(mem, mem[segmentDirectory:])-8:], 1<<31) },
	},
	{"no directory", func(_ *testing.T, mem []byte) { put64(mem[segmentDirectory:], 0) }},
	{"directory in the header", func(_ *testing.T, mem []byte) {
		put64(mem[segmentDirectory:], binary.LittleEndian.Uint64(mem[segmentBase:])+1)
	}},
	{"addresses in Go's heap", func(_ *testing.T, mem []byte) {
		at := pointed(mem, mem[segmentDirectory:])
		put64(mem[segmentBase:], 0xc0<<32)
		put64(mem[segmentDirectory:], 0xc0<<32+uint64(at))
	}},
	{"more threads than the segment has bytes", func(t *testing.T, mem []byte) {
		put32(mem[pointed(mem, entryOf(t, mem, "/if/rx")[segmentEntryValue:])-8:], ^uint32(0))
	}},
	{"more counters than the segment has bytes", func(t *testing.T, mem []byte) {
		threads := pointed(mem, entryOf(t, mem, "/if/drops")[segmentEntryValue:])
		put32(mem[pointed(mem, mem[threads:])-8:], ^uint32(0))
	}},
	{"longer name than the segment", func(t *testing.T, mem []byte) {
		names := pointed(mem, entryOf(t, mem, "/if/names")[segmentEntryValue:])
		put32(mem[pointed(mem, mem[names+3*8:])-8:], ^uint32(0))
	}},
	{"link behind the directory", func(t *testing.T, mem []byte) {
		put32(entryOf(t, mem, "/err/ip4-input/time_expired")[segmentEntryValue:], 1<<30)
	}},
	{"link to itself for ever", func(t *testing.T, mem []byte) {
		e := entryOf(t, mem, "/err/ip4-input/time_expired")
		put32(e[segmentEntryValue:], uint32((len(mem)-len(e))/segmentEntry))
		put32(e[segmentEntryValue+4:], ^uint32(0))
	}},
	{"all entries share one large vector", func(_ *testing.T, mem []byte) {
		put32(mem[4096+8:], 500) // a vector of pointers to itself
		for i := range 500 {
			put64(mem[4096+16+i*8:], binary.LittleEndian.Uint64(mem[segmentBase:])+4096+16)
		}
		put64(mem[segmentDirectory:], binary.LittleEndian.Uint64(mem[segmentBase:])+12<<10)
		put32(mem[12<<10-8:], 20)
		for i := range 20 {
			e := mem[12<<10+i*segmentEntry:][:segmentEntry]
			clear(e)
			put32(e, segmentCombined)
			put64(e[segmentEntryValue:], binary.LittleEndian.Uint64(mem[segmentBase:])+4096+16)
			copy(e[segmentEntryName:], fmt.Sprintf("/if/%d", i))
		}
	}},
}

func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// pointed is the offset that a pointer leads to.
func pointed(mem, pointer []byte) int {
	return int(binary.LittleEndian.Uint64(pointer) - binary.LittleEndian.Uint64(mem[segmentBase:]))
}

func TestInvalidSegmentsAreRefused(t *testing.T) {
	for _, c := range lies {
		t.Run(c.rule, func(t *testing.T) {
			mem := snapshot(t)
			c.spoil(t, mem)
			if _, err := reread(t, newTestMirror(t, len(mem)), mem); !errors.Is(err, errSegment) {
				t.Errorf("accepted: %v", err)
			}
		})
	}
}

// FuzzSegment damages a segment: the check refuses it, or govpp's client reads it and the process survives.
func FuzzSegment(f *testing.F) {
	mem := snapshot(f)
	m := newTestMirror(f, len(mem))
	f.Add([]byte{0, 32, 0xff, 1})
	f.Add(slices.Repeat([]byte{0x10, 0x20, 0x80, 4}, 8))
	f.Fuzz(func(t *testing.T, edits []byte) {
		spoiled := slices.Clone(mem)
		for ; len(edits) >= 4; edits = edits[4:] {
			at := (int(edits[0])<<8 | int(edits[1])) % (len(mem) - 8)
			for i := range 1 + edits[3]%8 {
				spoiled[at+int(i)] = edits[2] // a byte, or all of a number
			}
		}
		_, _ = reread(t, m, spoiled)
	})
}

func TestRandomlyDamagedSegmentsAreHarmless(t *testing.T) {
	mem := snapshot(t)
	m := newTestMirror(t, len(mem))
	refused := 0
	const tries = 3000
	for try := range tries {
		spoiled := slices.Clone(mem)
		random := rand.New(rand.NewPCG(1, uint64(try)))
		for range 1 + random.IntN(4) {
			at := random.IntN(6<<10/8) * 8 // the header, and then the directory with its vectors
			if at >= 64 {
				at += 4096 - 64
			}
			switch random.IntN(3) {
			case 0:
				binary.LittleEndian.PutUint32(spoiled[at:], random.Uint32())
			case 1:
				binary.LittleEndian.PutUint64(spoiled[at:],
					binary.LittleEndian.Uint64(mem[segmentBase:])+uint64(random.IntN(len(mem)+64)))
			default:
				spoiled[at] ^= 1 << random.IntN(8)
			}
		}
		if _, err := reread(t, m, spoiled); err != nil {
			refused++
		}
	}
	if refused == 0 || refused == tries {
		t.Errorf("%d of %d refused", refused, tries)
	}
	t.Logf("%d of %d refused", refused, tries)
}
