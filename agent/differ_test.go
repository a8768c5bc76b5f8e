package agent

import (
	"net/netip"
	"testing"
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
		"one field":                {oak, desk{Legs: 3, Wood: "oak"}, "legs is 3, not 4"},
		"several, in order":        {oak, desk{Legs: 3, Wood: "ash"}, "legs is 3, not 4; wood is ash, not oak"},
		"one that is left out":     {oak, desk{Wood: "oak"}, "legs is missing, not 4"},
		"one that nobody wanted":   {desk{Wood: "oak"}, oak, "legs is 4, not missing"},
		"a list":                   {desk{Owner: []netip.Addr{netip.IPv6Loopback()}}, desk{}, `owner is missing, not ["::1"]`},
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
