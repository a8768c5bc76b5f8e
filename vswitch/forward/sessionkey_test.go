package forward

import (
	"testing"

	"pgregory.net/rapid"
)

// keyParser makes the keys of packets as the full path does, and compares them with those of the fast path, which
// parses the frames of a vector into the same variable.
type keyParser struct{ plain aclPacket }

func (k *keyParser) key(t *rapid.T, f flow) packetKey {
	raw := f.frame()
	var full aclPacket
	full.parse(raw)
	k.plain.session.known = false
	if _, ok := k.plain.parsePlain(raw, len(raw)); !ok {
		t.Fatalf("%+v is not plain", f)
	}
	if *full.key() != *k.plain.key() && full.session.valid || full.upper != k.plain.upper ||
		full.flowWords != k.plain.flowWords {
		t.Fatalf("%+v is %+v on the full path and %+v on the fast path", f, full, k.plain)
	}
	return full.session
}

func TestBothDirectionsHaveTheSameSessionKeyAndOtherFlowsOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p keyParser
		f := drawFlow(t)
		other := drawFlow(t)
		if f.source == f.target {
			return
		}
		k := p.key(t, f)
		back := p.key(t, f.reversed())
		if k.valid && (!back.valid || k.sessionKey != back.sessionKey || k.hash != back.hash || k.fromB == back.fromB) {
			t.Fatalf("%+v has key %+v, the reverse %+v", f, k, back)
		}
		o := p.key(t, other)
		same := keyOf(other) == keyOf(f) || keyOf(other) == keyOf(f.reversed())
		if k.valid && o.valid && (k.sessionKey == o.sessionKey) != same {
			t.Fatalf("%+v and %+v have the keys %+v and %+v", f, other, k, o)
		}
	})
}

func TestSessionKeysAreEqualIfAllBitsAre(t *testing.T) {
	k := sessionKey{1, 2, 3, 4, upperKey(5, 6, 7, ofFragments|acl6)}
	if o := k; !o.equals(&k) {
		t.Error("a key differs from its copy")
	}
	for bit := range 64 {
		for n := range 5 {
			o := k
			*[]*uint64{&o.aHigh, &o.aLow, &o.bHigh, &o.bLow, &o.upper}[n] ^= 1 << bit
			if o.equals(&k) || k.equals(&o) {
				t.Errorf("keys that differ in bit %d of word %d are equal", bit, n)
			}
		}
	}
}
