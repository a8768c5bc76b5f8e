package netaddr_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestRangesAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.0.1":              "10.1.0.1",
		"10.1.0.1-10.1.0.20":    "10.1.0.1-10.1.0.20",
		"10.1.0.1 - 10.1.0.20":  "10.1.0.1-10.1.0.20",
		"10.1.0.16/28":          "10.1.0.16-10.1.0.31",
		"10.1.0.0/17":           "10.1.0.0-10.1.127.255",
		"fd00::/64":             "fd00::-fd00::ffff:ffff:ffff:ffff",
		"fd00::1-fd00::ff":      "fd00::1-fd00::ff",
		"255.255.255.255/32":    "255.255.255.255",
		"10.1.0.20-10.1.0.1":    "",
		"10.1.0.1-fd00::1":      "",
		"10.1.0.1/28":           "",
		"::ffff:10.1.0.1":       "",
		"fe80::1%eth0":          "",
		"":                      "",
		"10.1.0.1-":             "",
		"10.1.0.1-10.1.0.2-":    "",
		"10.1.0.1,10.1.0.2":     "",
		"10.1.0.1-10.1.0.16/28": "",
	} {
		got, err := netaddr.ParseRange(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q is parsed as %s", text, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
		if again, err := netaddr.ParseRange(got.String()); err != nil || again != got {
			t.Errorf("%s is parsed as %s, %v", got, again, err)
		}
	}
}

func TestAddressesOfOverlappingRangesCountOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
		draw := func(label string) netaddr.Range {
			first := rapid.IntRange(0, 600).Draw(rt, label+" first")
			last := first + rapid.IntRange(0, 300).Draw(rt, label+" size")
			return netaddr.Range{First: address(first), Last: address(last)}
		}
		ranges := netaddr.Ranges{{First: netip.MustParseAddr("fd00::"), Last: netip.MustParseAddr("fd00::9")}}
		for n := range rapid.IntRange(0, 5).Draw(rt, "ranges") {
			ranges = append(ranges, draw(fmt.Sprint(n)))
		}
		in := draw("in")
		var want uint64
		for a := in.First; !in.Last.Less(a); a = a.Next() {
			if ranges.Contain(a) {
				want++
			}
		}
		if got := ranges.CountIn(in.First, in.Last); got != want {
			rt.Errorf("%v has %d addresses of %v, want %d", in, got, ranges, want)
		}
	})
}

func TestTheCountOfALargeRangeSaturates(t *testing.T) {
	for text, want := range map[string]uint64{
		"fd00::/64":                              math.MaxUint64,
		"fd00::/65":                              1 << 63,
		"fd00::ffff:ffff:ffff:ffff-fd00:0:0:1::": 2,
		"::/0":                                   math.MaxUint64,
		"0.0.0.0/0":                              1 << 32,
	} {
		r, err := netaddr.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := (netaddr.Ranges{r, r}).CountIn(r.First, r.Last); got != want {
			t.Errorf("%s has %d addresses, want %d", text, got, want)
		}
	}
}
