package forward

import (
	"testing"

	"pgregory.net/rapid"
)

// keyOfFrame returns the key of a packet's session, as the full path and as the fast path parse it.
func keyOfFrame(t *rapid.T, f flow) packetKey {
	raw := f.frame()
	var full, plain aclPacket
	full.parse(raw)
	if _, ok := plain.parsePlain(raw, len(raw)); !ok {
		t.Fatalf("%+v is not plain", f)
	}
	if *full.key() != *plain.key() {
		t.Fatalf("%+v has the keys %+v and %+v", f, full.session, plain.session)
	}
	return full.session
}

func TestBothDirectionsHaveTheSameSessionKeyAndOtherFlowsOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, other := drawFlow(t), drawFlow(t)
		k, back := keyOfFrame(t, f), keyOfFrame(t, f.reversed())
		if k.valid && (!back.valid || k.sessionKey != back.sessionKey || k.hash != back.hash || k.fromB == back.fromB && keyOf(f) != keyOf(f.reversed())) {
			t.Fatalf("%+v has key %+v, the reverse %+v", f, k, back)
		}
		o := keyOfFrame(t, other)
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
