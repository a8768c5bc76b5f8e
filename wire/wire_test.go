package wire_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// equals are the Equal methods of the types that == cannot compare.
var equals = map[string]any{
	"ACL": wire.ACL.Equal, "InterfaceACL": wire.InterfaceACL.Equal, "Card": wire.Card.Equal, "MACIP": wire.MACIP.Equal,
	"Masquerade": wire.Masquerade.Equal, "Route": wire.Route.Equal,
	"TunnelGuard": wire.TunnelGuard.Equal, "TunnelNAT": wire.TunnelNAT.Equal, "Uplink": wire.Uplink.Equal,
}

// Drift of a field that Equal ignores would never be repaired.
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
		key := reflect.New(v.Type().Key()).Elem()
		value := reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("unsupported field of kind %s", v.Kind())
	}
}

func TestKindsAreUniqueAndHaveNoSlash(t *testing.T) {
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
			t.Errorf("%s: IsDataplane %t", kind, wire.IsDataplane(wire.Key(kind, "x")))
		}
	}
}

func TestKeysOfDifferentObjectsDiffer(t *testing.T) {
	p4 := netip.MustParsePrefix("10.0.0.0/8")
	p6 := netip.MustParsePrefix("fd00::/64")
	a4 := p4.Addr()
	a6 := p6.Addr()
	keys := []string{
		wire.VRFKey("pods", netaddr.IP4), wire.VRFKey("pods", netaddr.IP6), wire.InterfaceVRFKey("tap", netaddr.IP4),
		wire.InterfaceVRFKey("tap", netaddr.IP6),
		wire.AddressKey("tap", p4), wire.AddressKey("tap", p6), wire.RouteKey("pods/ip4", p4),
		wire.RouteKey("pods/ip6", p6), wire.NeighbourKey("tap", a4),
		wire.NeighbourKey("tap", a6), wire.LinuxAddressKey("tap", p4), wire.LinuxRouteKey("tap", p4),
		wire.LinuxNeighbourKey("tap", a4), wire.InterfaceKey("tap"),
		wire.TapPeerKey("tap"), wire.VethKey("tap"), wire.VLANKey("tap"), wire.LinkKey("tap"), wire.HardeningKey("tap"),
		wire.SysctlKey("tap", "net/x"),
		wire.PuntRedirectKey("tap", netaddr.IP4), wire.PuntRedirectKey("tap", netaddr.IP6), wire.MasqueradeKey(),
		wire.TunnelNATKey(), wire.UplinkKey("eth0"),
		wire.L2FIBKey("blue", netaddr.MAC{2}), wire.L2FIBKey("blue", netaddr.MAC{4}), wire.BridgeDomainKey("blue"),
		wire.BridgeMemberKey("tap"), wire.ACLKey("tap"), wire.InterfaceACLKey("tap"), wire.MACIPKey("tap"),
		wire.UnnumberedKey("tap"), wire.MemifSocketKey("tap"), wire.FileKey("/tap"), wire.NamespaceKey("/tap"),
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(keys))); len(sorted) != len(keys) {
		t.Errorf("%d keys, %d different ones", len(keys), len(sorted))
	}
	for _, key := range keys {
		if kind, _, _ := strings.Cut(key, "/"); !slices.Contains(wire.Kinds(), kind) {
			t.Errorf("key %s has an unknown kind", key)
		}
	}
}

func TestAddressSumIsTheChecksumOfRFC1071(t *testing.T) {
	for text, want := range map[string]uint16{
		"0.0.0.0":     0,
		"0.1.242.3":   0xf204,
		"255.255.0.0": 0,
		"255.255.0.1": 1,
		"fd00::1":     0xfd01,
		"::ffff:0:0":  0,
	} {
		if got := wire.AddressSum(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %#x, want %#x", text, got, want)
		}
	}
}

func TestFamiliesOfACardAreThoseOfItsAddresses(t *testing.T) {
	four := wire.CardAddress{Prefix: netip.MustParsePrefix("192.0.2.1/24")}
	six := wire.CardAddress{Prefix: netip.MustParsePrefix("2001:db8::1/64")}
	for _, tt := range []struct {
		addresses []wire.CardAddress
		want      []netaddr.Family
	}{{nil, nil}, {[]wire.CardAddress{six}, []netaddr.Family{netaddr.IP6}}, {
		[]wire.CardAddress{six, four, four}, []netaddr.Family{netaddr.IP4, netaddr.IP6},
	}} {
		card := wire.Card{Addresses: tt.addresses}
		if got := card.Families(); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v", tt.addresses, got)
		}
	}
	if got := (wire.Card{Addresses: []wire.CardAddress{six}}).Address(netaddr.IP4); got.IsValid() {
		t.Errorf("an IPv4 address %s", got)
	}
}

func TestGatewayOfAnUplinkIsInvalidWithoutOneOfTheFamily(t *testing.T) {
	four := netip.MustParseAddr("169.254.43.2")
	u := wire.Uplink{Gateways: []netip.Addr{four}}
	if got := u.Gateway(netaddr.IP4); got != four {
		t.Errorf("IPv4 gateway %s", got)
	}
	if got := u.Gateway(netaddr.IP6); got.IsValid() {
		t.Errorf("IPv6 gateway %s", got)
	}
}

// Values of the state file may be those of an earlier version.
func TestACLsOfEarlierVersionsAreRead(t *testing.T) {
	text := `{"label":"x","rules":[
		{"permit":true,"reflect":true,"family":"ip4","source":"10.0.0.1/32","protocols":{"first":6,"last":6},"sources":{"first":0,"last":65535},
			"destinations":{"first":80,"last":81},"origin":"o"},
		{"family":"ip6","destination":"fd00::/64"}]}`
	want := wire.ACL{Label: "x", Rules: []wire.ACLRule{
		{
			Permit:  true,
			Reflect: true,
			Family:  netaddr.IP4,
			From:    []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
			Origin:  "o",
			Ports: []wire.ACLPorts{
				{
					Protocols:    wire.Single(6),
					Sources:      wire.Range{Last: 65535},
					Destinations: wire.Range{First: 80, Last: 81},
				},
			},
		},
		{Family: netaddr.IP6, To: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}},
	}}
	var got wire.ACL
	if err := json.Unmarshal([]byte(text), &got); err != nil || !got.Equal(want) {
		t.Errorf("%+v, %v", got, err)
	}
	raw, err := json.Marshal(want)
	var again wire.ACL
	if err != nil || json.Unmarshal(raw, &again) != nil || !again.Equal(want) {
		t.Errorf("%s is read back as %+v", raw, again)
	}
}
