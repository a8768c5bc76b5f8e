package drift

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

type desk struct {
	Legs  int          `json:"legs,omitempty"`
	Wood  string       `json:"wood"`
	Owner []netip.Addr `json:"owner,omitempty"`
}

func TestADifferenceIsNamedFieldByField(t *testing.T) {
	oak := desk{Legs: 4, Wood: "oak"}
	tests := map[string]struct {
		want, have any
		text       string
	}{
		"one field":               {oak, desk{Legs: 3, Wood: "oak"}, "legs is 3, not 4"},
		"several, in order":       {oak, desk{Legs: 3, Wood: "ash"}, "legs is 3, not 4; wood is ash, not oak"},
		"one that is left out":    {oak, desk{Wood: "oak"}, "legs is missing, not 4"},
		"one that is not desired": {desk{Wood: "oak"}, oak, "legs is 4, not missing"},
		"a list": {
			desk{Owner: []netip.Addr{netip.IPv6Loopback()}}, desk{}, `owner is missing, not ["::1"]`,
		},
		"no difference to be seen": {oak, oak, ""},
		"values without fields":    {"oak", "ash", "it is ash, not oak"},
		"nothing there":            {oak, nil, ""},
		"what makes no document":   {oak, func() {}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := differing(tt.want, tt.have); got != tt.text {
				t.Errorf("got %q, want %q", got, tt.text)
			}
		})
	}
}

func TestALinksFieldsDifferEachByItself(t *testing.T) {
	ref := kvscheduler.Ref{Kind: wire.KindTapPeer, Name: "tap0"}
	want := wire.TapPeer{Interface: "tap0", Name: "eth0", MTU: 1500, Up: true}
	have := want
	have.MTU = 1400
	have.Up = false
	tests := map[string]struct {
		difference kvscheduler.Difference
		found      []podmanager.Difference
	}{
		"two fields": {
			kvscheduler.Difference{Ref: ref, Want: want, Have: have, Reason: "changed"}, []podmanager.Difference{
				{
					Text:      ref.String() + ": changed (mtu is 1400, not 1500)",
					Interface: "eth0",
					Field:     podmanager.FieldMTU,
					Have:      "1400",
				},
				{
					Text:      ref.String() + ": changed (up is false, not true)",
					Interface: "eth0",
					Field:     "up",
					Have:      "false",
				},
			},
		},
		"a link that is gone": {
			kvscheduler.Difference{Ref: ref, Want: want, Reason: "missing"}, []podmanager.Difference{
				{Text: ref.String() + ": missing", Interface: "eth0"},
			},
		},
		"a pair": {
			kvscheduler.Difference{
				Ref:    ref,
				Want:   wire.Veth{Name: "veth1", MTU: 1500},
				Have:   wire.Veth{Name: "veth1", MTU: 1400},
				Reason: "changed",
			},
			[]podmanager.Difference{
				{
					Text:      ref.String() + ": changed (mtu is 1400, not 1500)",
					Interface: "veth1",
					Field:     podmanager.FieldMTU,
					Have:      "1400",
				},
			},
		},
		"what is no link": {
			kvscheduler.Difference{Ref: ref, Want: desk{Legs: 4}, Have: desk{Legs: 3}, Reason: "changed"},
			[]podmanager.Difference{
				{Text: ref.String() + ": changed (legs is 3, not 4)"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Differences(tt.difference, nil); !slices.Equal(got, tt.found) {
				t.Errorf("got %+v\nwant %+v", got, tt.found)
			}
		})
	}
}
