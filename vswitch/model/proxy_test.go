package model

import (
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestPuntRedirectDoesNotUseNewInterfaceWithIndexOfDeletedOne(t *testing.T) {
	b := newTestModel()
	rx := b.tap(t)
	target := b.tap(t)
	do(t, b.Punt.SetRedirect(rx, forward.IP4, []Path{{Interface: target}}))
	do(t, b.Taps.Delete(target))
	b.Interfaces.lastIndex = target - 1 // as after 65,536 more interfaces
	if again := b.tap(t); again != target {
		t.Fatalf("index is %d, want %d", again, target)
	}
	redirect := func() (r *forward.Redirect) {
		b.engine.Look(func(s modeltest.State) { r = s.Interfaces[rx].Redirect4 })
		return r
	}
	if r := redirect(); r == nil || r.Interface == target {
		t.Errorf("redirect %+v", r)
	}
	if list := b.Punt.Redirects(rx, forward.IP4); len(list) != 1 || list[0].Path.Interface != target {
		t.Errorf("dump %+v", list)
	}
	do(t, b.Punt.SetRedirect(rx, forward.IP4, []Path{{Interface: target}}))
	if r := redirect(); r == nil || r.Interface != target {
		t.Errorf("set again: %+v", r)
	}
}
