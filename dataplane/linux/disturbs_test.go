package linux

import (
	"fmt"
	"testing"

	"github.com/weftnet/weft/wire"
)

// A new MTU withdraws nothing on the link, unless the kernel does: IPv6 ends below 1280 bytes, and returns with them.
func TestOnlyTheMTUOfALinkChangesWithoutItsDependents(t *testing.T) {
	tap := tapPeerDescriptor(Options{}).Disturbs
	veth := vethDescriptor(Options{}).Disturbs
	for _, tt := range []struct {
		have, want int
		up         bool
		disturbs   bool
	}{
		{have: 1500, want: 1400, up: true},
		{have: 1280, want: 1500, up: true},
		{have: 1279, want: 1500, up: true, disturbs: true},
		{have: 1500, want: 1279, up: true, disturbs: true},
		{have: 1500, want: 1400, disturbs: true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			got := tap(wire.TapPeer{MTU: tt.have, Up: true}, wire.TapPeer{MTU: tt.want, Up: tt.up})
			if got != tt.disturbs {
				t.Errorf("a tap: %t", got)
			}
			if got := veth(wire.Veth{MTU: tt.have, Up: true}, wire.Veth{MTU: tt.want, Up: tt.up}); got != tt.disturbs {
				t.Errorf("a veth: %t", got)
			}
		})
	}
}
