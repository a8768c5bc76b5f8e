package netaddr_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestABlockOfAStateFileIsRead(t *testing.T) {
	const saved = `{"network":"blue","prefix":"10.5.0.0/26","withheld":["10.5.0.9"]}`
	want := netaddr.Block{
		Network:  "blue",
		Prefix:   netip.MustParsePrefix("10.5.0.0/26"),
		Withheld: []netip.Addr{netip.MustParseAddr("10.5.0.9")},
	}
	var got netaddr.Block
	if err := json.Unmarshal([]byte(saved), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if text, err := json.Marshal(want); err != nil || string(text) != saved {
		t.Errorf("saved as %s, %v, want %s", text, err, saved)
	}
}
