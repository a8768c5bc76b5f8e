package wire_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/wire"
)

func TestMACsAreSixOctets(t *testing.T) {
	for text, want := range map[string]wire.MAC{
		"02:00:00:00:00:01": {2, 0, 0, 0, 0, 1},
		"02-00-00-00-00-01": {2, 0, 0, 0, 0, 1},
		"0200.0000.0001":    {2, 0, 0, 0, 0, 1},
		"FF:FF:FF:FF:FF:FF": {255, 255, 255, 255, 255, 255},
	} {
		if got, err := wire.ParseMAC(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "02:00", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00:5e:10:00:00:00:01", "::"} {
		if got, err := wire.ParseMAC(text); err == nil {
			t.Errorf("%q is accepted as %v", text, got)
		}
	}
}

func TestAMACIsTheSameAfterJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mac := wire.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(rt, "octets"))
		text, err := json.Marshal(mac)
		var back wire.MAC
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back != mac {
			rt.Fatalf("%v -> %s -> %v, %v", mac, text, back, err)
		}
	})
	mac := wire.MAC{2, 0, 0, 0, 0, 1}
	if err := json.Unmarshal([]byte(`"02:00"`), &mac); err == nil || mac != (wire.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("an invalid text: %v, %v", mac, err)
	}
}

func TestOnlyAMACOfOneInterfaceIsUnicast(t *testing.T) {
	for text, want := range map[string]bool{"02:00:00:00:00:01": true, "01:00:5e:00:00:01": false, "ff:ff:ff:ff:ff:ff": false, "00:00:00:00:00:00": false} {
		mac, err := wire.ParseMAC(text)
		if err != nil || mac.IsUnicast() != want {
			t.Errorf("%s: unicast %t, %v", text, mac.IsUnicast(), err)
		}
	}
}

// equals are the types that == cannot compare, with their Equal.
var equals = map[string]any{
	"ACL": wire.ACL.Equal, "Card": wire.Card.Equal, "MACIP": wire.MACIP.Equal, "Masquerade": wire.Masquerade.Equal, "Route": wire.Route.Equal,
	"TunnelGuard": wire.TunnelGuard.Equal, "TunnelNAT": wire.TunnelNAT.Equal, "Uplink": wire.Uplink.Equal,
}

// A field that Equal forgets would never be repaired.
func TestEqualComparesEachField(t *testing.T) {
	for name, equal := range equals {
		f := reflect.ValueOf(equal)
		of := f.Type().In(0)
		zero := reflect.Zero(of)
		if same := f.Call([]reflect.Value{zero, zero}); !same[0].Bool() {
			t.Errorf("%s: the zero values differ", name)
		}
		for i := range of.NumField() {
			changed := reflect.New(of).Elem()
			fill(t, changed.Field(i))
			if f.Call([]reflect.Value{zero, changed})[0].Bool() || f.Call([]reflect.Value{changed, zero})[0].Bool() {
				t.Errorf("%s: Equal ignores %s", name, of.Field(i).Name)
			}
			if !f.Call([]reflect.Value{changed, changed})[0].Bool() {
				t.Errorf("%s: a value with %s differs from itself", name, of.Field(i).Name)
			}
		}
	}
}

// fill sets a value other than the zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("10.1.1.1")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("10.1.1.0/24")))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.String:
		v.SetString("x")
	case reflect.Array:
		fill(t, v.Index(0))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

func TestKindsAreListedOnceAndHaveNoSlash(t *testing.T) {
	kinds := wire.Kinds()
	sorted := slices.Compact(slices.Sorted(slices.Values(kinds)))
	if len(sorted) != len(kinds) {
		t.Errorf("%d kinds, %d different ones", len(kinds), len(sorted))
	}
	for _, kind := range kinds {
		side, name, found := strings.Cut(kind, ".")
		if !found || name == "" || strings.Contains(kind, "/") || side != "vpp" && side != "linux" {
			t.Errorf("kind %q", kind)
		}
		if wire.IsDataplane(wire.Key(kind, "x")) != (side == "vpp") {
			t.Errorf("%s: of the dataplane %t", kind, wire.IsDataplane(wire.Key(kind, "x")))
		}
	}
}

func TestKeysOfDifferentObjectsDiffer(t *testing.T) {
	p4, p6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64")
	a4, a6 := p4.Addr(), p6.Addr()
	keys := []string{
		wire.VRFKey("pods", wire.IP4), wire.VRFKey("pods", wire.IP6), wire.InterfaceVRFKey("tap", wire.IP4), wire.InterfaceVRFKey("tap", wire.IP6),
		wire.AddressKey("tap", p4), wire.AddressKey("tap", p6), wire.RouteKey("pods/ip4", p4), wire.RouteKey("pods/ip6", p6), wire.NeighbourKey("tap", a4),
		wire.NeighbourKey("tap", a6), wire.LinuxAddressKey("tap", p4), wire.LinuxRouteKey("tap", p4), wire.LinuxNeighbourKey("tap", a4), wire.InterfaceKey("tap"),
		wire.TapPeerKey("tap"), wire.VethKey("tap"), wire.VLANKey("tap"), wire.LinkKey("tap"), wire.HardeningKey("tap"), wire.SysctlKey("tap", "net/x"),
		wire.PuntRedirectKey("tap", wire.IP4), wire.PuntRedirectKey("tap", wire.IP6), wire.MasqueradeKey(), wire.TunnelNATKey(), wire.UplinkKey("eth0"),
		wire.L2FIBKey("blue", wire.MAC{2}), wire.L2FIBKey("blue", wire.MAC{4}), wire.BridgeDomainKey("blue"), wire.BridgeMemberKey("tap"),
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(keys))); len(sorted) != len(keys) {
		t.Errorf("%d keys, %d different ones", len(keys), len(sorted))
	}
	for _, key := range keys {
		if kind, _, _ := strings.Cut(key, "/"); !slices.Contains(wire.Kinds(), kind) {
			t.Errorf("key %s is of no kind", key)
		}
	}
}

// An address with the sum of another one can take its place in a packet without a change of the checksum (RFC 6296).
func TestTheAddressSumIsThatOfRFC1071(t *testing.T) {
	for text, want := range map[string]uint16{"0.0.0.0": 0, "0.1.242.3": 0xf204, "255.255.0.0": 0, "255.255.0.1": 1, "fd00::1": 0xfd01, "::ffff:0:0": 0} {
		if got := wire.AddressSum(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %#x, want %#x", text, got, want)
		}
	}
}

func TestTheFamiliesOfACardAreThoseOfItsAddresses(t *testing.T) {
	four, six := wire.CardAddress{Prefix: netip.MustParsePrefix("192.0.2.1/24")}, wire.CardAddress{Prefix: netip.MustParsePrefix("2001:db8::1/64")}
	for _, tt := range []struct {
		addresses []wire.CardAddress
		want      []wire.Family
	}{{nil, nil}, {[]wire.CardAddress{six}, []wire.Family{wire.IP6}}, {[]wire.CardAddress{six, four, four}, []wire.Family{wire.IP4, wire.IP6}}} {
		card := wire.Card{Addresses: tt.addresses}
		if got := card.Families(); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v", tt.addresses, got)
		}
	}
	if got := (wire.Card{Addresses: []wire.CardAddress{six}}).Address(wire.IP4); got.IsValid() {
		t.Errorf("an IPv4 address %s", got)
	}
}
