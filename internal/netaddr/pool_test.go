package netaddr_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestFirstAndLastOmitAddressesThatAreNotForPods(t *testing.T) {
	for prefix, want := range map[string][3]string{
		"10.1.0.0/24":   {"10.1.0.1", "10.1.0.2", "10.1.0.254"},
		"10.1.0.0/30":   {"10.1.0.1", "10.1.0.2", "10.1.0.2"},
		"2001:db8::/64": {"2001:db8::1", "2001:db8::2", "2001:db8::ffff:ffff:ffff:ffff"},
	} {
		p := netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix(prefix)}
		if got := [3]string{p.Node().String(), p.First().String(), p.Last().String()}; got != want {
			t.Errorf("%s: node, first, last %v, want %v", prefix, got, want)
		}
	}
}

func TestAPoolOfAStateFileIsRead(t *testing.T) {
	const saved = `{"name":"pods","prefix":"10.1.0.0/16","blocks":true,"disabled":true,"namespaces":["shop"]}`
	want := netaddr.Pool{
		Name:       "pods",
		Prefix:     netip.MustParsePrefix("10.1.0.0/16"),
		Blocks:     true,
		Disabled:   true,
		Namespaces: []string{"shop"},
	}
	var got netaddr.Pool
	if err := json.Unmarshal([]byte(saved), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if text, err := json.Marshal(want); err != nil || string(text) != saved {
		t.Errorf("saved as %s, %v, want %s", text, err, saved)
	}
}
