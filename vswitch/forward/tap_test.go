package forward_test

import (
	"testing"
)

func TestPodsReachEachOther(t *testing.T) {
	l := newLab(t)
	a, b := l.pod(), l.pod()
	for _, r := range []ping{{to: b.v4}, {to: b.v6}, {to: b.v4, size: 1400}, {to: b.v6, size: 1400}, {to: gateway4}, {to: gateway6}} {
		a.wantReply(t, r)
	}
	b.wantReply(t, ping{to: a.v4})
	if d := l.engine.Drops(); len(d) != 0 {
		t.Logf("drops: %v", d)
	}
}
