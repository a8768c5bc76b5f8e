package netaddr_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestParseMACAcceptsTheFormatsOfSixOctets(t *testing.T) {
	for text, want := range map[string]netaddr.MAC{
		"02:00:00:00:00:01": {2, 0, 0, 0, 0, 1},
		"02-00-00-00-00-01": {2, 0, 0, 0, 0, 1},
		"0200.0000.0001":    {2, 0, 0, 0, 0, 1},
		"FF:FF:FF:FF:FF:FF": {255, 255, 255, 255, 255, 255},
	} {
		if got, err := netaddr.ParseMAC(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// invalidMACs are texts that are not MACs of six octets.
var invalidMACs = map[string]string{
	"no text":                 "",
	"two octets":              "02:00",
	"five octets":             "02:00:00:00:00",
	"an octet of three":       "02:00:00:00:00:001",
	"a digit above f":         "02:00:00:00:00:0g",
	"mixed separators":        "02:00-00:00:00:01",
	"white space":             " 02:00:00:00:00:01",
	"an EUI-64 identifier":    "02:00:5e:10:00:00:00:01",
	"an InfiniBand address":   "00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01",
	"an IPv6 address":         "::",
	"the text of a secret":    "(secret)",
	"a MAC with its mask":     "02:00:00:00:00:01/48",
	"two MACs":                "02:00:00:00:00:01,02:00:00:00:00:02",
	"a trailing separator":    "02:00:00:00:00:01:",
	"dots between all octets": "02.00.00.00.00.01",
}

func TestParseMACRejectsOtherTexts(t *testing.T) {
	for name, text := range invalidMACs {
		if got, err := netaddr.ParseMAC(text); err == nil || got != (netaddr.MAC{}) {
			t.Errorf("%s: %q is accepted as %v", name, text, got)
		}
	}
}

func TestUnmarshalOfAnInvalidMACKeepsTheValue(t *testing.T) {
	want := netaddr.MAC{2, 0, 0, 0, 0, 1}
	for name, text := range invalidMACs {
		if text == "" {
			continue // the zero MAC
		}
		mac := want
		if err := mac.UnmarshalText([]byte(text)); err == nil || mac != want {
			t.Errorf("%s: %v, error %v", name, mac, err)
		}
	}
	mac := want
	if err := json.Unmarshal([]byte(`2`), &mac); err == nil || mac != want {
		t.Errorf("a number: %v, error %v", mac, err)
	}
}

func TestAMACIsTheSameAfterJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mac := netaddr.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(rt, "octets"))
		text, err := json.Marshal(mac)
		var back netaddr.MAC
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back != mac {
			rt.Fatalf("%v -> %s -> %v, %v", mac, text, back, err)
		}
	})
	if text, err := json.Marshal(netaddr.MAC{}); err != nil || string(text) != `""` {
		t.Errorf("the zero MAC: %s, %v", text, err)
	}
}

func TestIsUnicastRejectsMACsOfSeveralInterfaces(t *testing.T) {
	for name, tt := range map[string]struct {
		mac  netaddr.MAC
		want bool
	}{
		"a locally administered MAC": {netaddr.MAC{2, 0, 0, 0, 0, 1}, true},
		"a vendor's MAC":             {netaddr.MAC{0, 0x50, 0x56, 0, 0, 1}, true},
		"the zero MAC":               {netaddr.MAC{}, false},
		"an IPv4 multicast MAC":      {netaddr.MAC{1, 0, 0x5e, 0, 0, 1}, false},
		"an IPv6 multicast MAC":      {netaddr.MAC{0x33, 0x33, 0, 0, 0, 1}, false},
		"the broadcast MAC":          {netaddr.MAC{255, 255, 255, 255, 255, 255}, false},
	} {
		if tt.mac.IsUnicast() != tt.want {
			t.Errorf("%s: unicast %t", name, !tt.want)
		}
	}
}
