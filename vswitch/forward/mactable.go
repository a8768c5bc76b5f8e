package forward

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// macOrder sizes a MAC table: 1<<macOrder places, of which at most half are taken, so that probing stays short.
	macOrder = 15
	// maxLearned bounds the MACs that are learned in all.
	maxLearned = 1 << (macOrder - 1)
	// maxLearnedInBridge leaves room for others where one bridge's members send from ever new MACs.
	maxLearnedInBridge = maxLearned / 2
	// sweepASecond is how much of the table is looked through for MACs that are too old: all of it in half a minute.
	sweepASecond = 1 << (macOrder - 5)
)

// macKey is a bridge's slot and a MAC. 0 is none.
type macKey uint64

func macKeyOf(slot uint16, m frame.MAC) macKey {
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(m[:]))<<16 | macKey(binary.BigEndian.Uint16(m[4:]))
}

// macKeyAt is macKeyOf of the address that b begins with. Addresses of frames go through registers only: six bytes that are
// written in two pieces and read in one make the processor wait.
func macKeyAt(slot uint16, b []byte) macKey {
	_ = b[5]
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(b))<<16 | macKey(binary.BigEndian.Uint16(b[4:]))
}

// address is the key without the bridge.
func (k macKey) address() uint64 { return uint64(k) & (1<<48 - 1) }

func (k macKey) isMulticast() bool { return k>>40&1 == 1 }

func (k macKey) slot() uint16 { return uint16(k >> 48) }

func (k macKey) mac() (m frame.MAC) {
	binary.BigEndian.PutUint32(m[:], uint32(k>>16))
	binary.BigEndian.PutUint16(m[4:], uint16(k))
	return m
}

// macEntry says where a MAC was seen last, and when.
type macEntry struct {
	key  macKey
	out  uint32
	seen uint32 // seconds of the worker's clock
}

// macTable holds what a worker has learned. It is the worker's alone: open addressing with linear probing, and nothing left
// behind by what is removed. Its hash is seeded, so that nobody can choose MACs that make the probing long.
type macTable struct {
	places   []macEntry
	seed     uint64
	count    int
	byBridge [maxBridges + 1]int32
	hand     int // where sweeping goes on
}

func newMACTable() *macTable {
	return &macTable{places: make([]macEntry, 1<<macOrder), seed: rand.Uint64()}
}

func (t *macTable) place(k macKey) int {
	h := (uint64(k) ^ t.seed) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return int(h >> (64 - macOrder))
}

// find returns the entry of k, to be read and changed until the next call; nil: there is none.
func (t *macTable) find(k macKey) *macEntry {
	for i := t.place(k); ; i = (i + 1) % len(t.places) {
		e := &t.places[i]
		if e.key == k {
			return e
		}
		if e.key == 0 {
			return nil
		}
	}
}

// add makes an entry for k, which has none; false: there are too many.
func (t *macTable) add(e macEntry) bool {
	n := &t.byBridge[e.key.slot()]
	if t.count >= maxLearned || *n >= maxLearnedInBridge {
		return false
	}
	i := t.place(e.key)
	for t.places[i].key != 0 {
		i = (i + 1) % len(t.places)
	}
	t.places[i] = e
	t.count++
	*n++
	return true
}

// remove forgets the entry of k, if there is one.
func (t *macTable) remove(k macKey) bool {
	for i := t.place(k); t.places[i].key != 0; i = (i + 1) % len(t.places) {
		if t.places[i].key == k {
			t.removeAt(i)
			return true
		}
	}
	return false
}

// removeAt frees a place and closes the gap: entries that probed past it move up.
func (t *macTable) removeAt(gap int) {
	t.byBridge[t.places[gap].key.slot()]--
	t.count--
	size := len(t.places)
	for i := (gap + 1) % size; t.places[i].key != 0; i = (i + 1) % size {
		home := t.place(t.places[i].key)
		if (i-home+size)%size >= (i-gap+size)%size {
			t.places[gap] = t.places[i]
			gap = i
		}
	}
	t.places[gap] = macEntry{}
}

// sweep looks at the next n places and removes what goes says.
func (t *macTable) sweep(n int, goes func(*macEntry) bool) {
	for range min(n, len(t.places)) {
		// What moves up into a freed place has not been looked at.
		for t.places[t.hand].key != 0 && goes(&t.places[t.hand]) {
			t.removeAt(t.hand)
		}
		t.hand = (t.hand + 1) % len(t.places)
	}
}
