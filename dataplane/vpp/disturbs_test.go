package vpp

import (
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// A new MTU must not withdraw the routes, neighbours and places in networks of an interface, not even for a moment.
func TestOnlyTheMTUOfAnInterfaceChangesWithoutItsDependents(t *testing.T) {
	disturbs := interfaceDescriptor(nil).Disturbs
	have := wire.Interface{
		Type: wire.TypeLoopback,
		MAC:  netaddr.MAC{2, 1},
		MTU:  1500,
		Up:   true,
	}
	for name, tt := range map[string]struct {
		change   func(*wire.Interface)
		disturbs bool
	}{
		"MTU":         {func(v *wire.Interface) { v.MTU = 1400 }, false},
		"MAC":         {func(v *wire.Interface) { v.MAC = netaddr.MAC{2, 2} }, true},
		"down":        {func(v *wire.Interface) { v.Up = false }, true},
		"MTU and MAC": {func(v *wire.Interface) { v.MTU = 1400; v.MAC = netaddr.MAC{2, 2} }, true},
	} {
		want := have
		tt.change(&want)
		if got := disturbs(have, want); got != tt.disturbs {
			t.Errorf("%s: %t, want %t", name, got, tt.disturbs)
		}
	}
}
