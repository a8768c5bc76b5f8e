package desired

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

func anyKey(r *rapid.T) pod.Key {
	part := func(most string) string { return rapid.StringMatching(`[a-zA-Z0-9._-]{1,`+most+`}`).Draw(r, "part") }
	return pod.Key{Network: part("20"), ContainerID: part("64"), IfName: part("15")}
}

// TestNamesOfDifferentKeysDiffer also draws keys that differ in where a part ends only.
func TestNamesOfDifferentKeysDiffer(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a := anyKey(r)
		b := anyKey(r)
		if rapid.Bool().Draw(r, "alike") {
			b = a
			cut := rapid.IntRange(0, len(a.ContainerID)-1).Draw(r, "cut")
			b.Network = a.Network + a.ContainerID[:cut]
			b.ContainerID = a.ContainerID[cut:]
		}
		nameA := ObjectName(a, a.IfName)
		nameB := ObjectName(b, b.IfName)
		if (a == b) != (nameA == nameB) || (a == b) != (AliasOf(a, a.IfName) == AliasOf(b, b.IfName)) {
			r.Fatalf("%v and %v: names %s and %s, aliases %s and %s", a, b, nameA, nameB, AliasOf(a, a.IfName),
				AliasOf(b, b.IfName))
		}
		if a != b && MACOf(nameA, LinuxEnd) == MACOf(nameB, LinuxEnd) {
			r.Fatalf("%v and %v: the same MAC", a, b)
		}
	})
}

func TestNamesFitWhereTheyGo(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		k := anyKey(r)
		k.Network += strings.Repeat("n", rapid.IntRange(0, 300).Draw(r, "long"))
		name := ObjectName(k, k.IfName)
		if len(name) > 48 || !strings.HasPrefix(name, "weft-") {
			r.Errorf("object %q", name)
		}
		if alias := AliasOf(k, k.IfName); len(alias) > 255 || !strings.HasPrefix(alias, "weft:") {
			r.Errorf("alias %q", alias)
		}
		linux := MACOf(name, LinuxEnd)
		dataplane := MACOf(name, DataplaneEnd)
		for _, mac := range [][6]byte{linux, dataplane} {
			if mac[0]&3 != 2 {
				r.Errorf("MAC %v is not locally administered unicast", mac)
			}
		}
		if linux == dataplane {
			r.Errorf("both ends have %s", linux)
		}
	})
}

func TestNamesAreThoseOfEarlierVersions(t *testing.T) {
	k := pod.Key{Network: "weft", ContainerID: "0123456789ab", IfName: "eth0"}
	name := ObjectName(k, k.IfName)
	got := strings.Join(
		[]string{name, AliasOf(k, k.IfName), MACOf(name, LinuxEnd).String(), MACOf(name, DataplaneEnd).String()}, " ")
	if want := "weft-06658372a50578ef-eth0 weft:weft/0123456789ab/eth0 02:8c:90:cf:64:60 06:8c:90:cf:64:60"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
}

// TestNamesOfNetworksDifferAndFit also draws names that differ in their last byte only.
func TestNamesOfNetworksDifferAndFit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`[a-z]([a-z0-9-]{0,61}[a-z0-9])?`)
		a := name.Draw(r, "a")
		b := name.Draw(r, "b")
		if rapid.Bool().Draw(r, "alike") {
			b = a[:len(a)-1] + "x"
		}
		if len(LabelOf(a)) > maxLabel || len(LoopbackOf(a)) > maxObject || LabelOf(a) == PodsLabel {
			r.Fatalf("%s: label %s, loopback %s", a, LabelOf(a), LoopbackOf(a))
		}
		if NetworkOfPool(PoolOfNetwork(a, "ip4")) != a || NetworkOfPool(a) != "" {
			r.Fatalf("%s: pool %s", a, PoolOfNetwork(a, "ip4"))
		}
		if (a == b) != (LabelOf(a) == LabelOf(b)) || (a == b) != (LoopbackOf(a) == LoopbackOf(b)) {
			r.Fatalf("%s and %s: labels %s and %s, loopbacks %s and %s", a, b, LabelOf(a), LabelOf(b), LoopbackOf(a),
				LoopbackOf(b))
		}
	})
}

func TestANetworkCalledPodsIsNotThePods(t *testing.T) {
	if label := LabelOf("pods"); label == PodsLabel || !strings.HasPrefix(label, "weft:pods.") {
		t.Errorf("label %s", label)
	}
}

// TestNamesOfInterfacesDiffer: an interface of one attachment is never taken for one of another.
func TestNamesOfInterfacesDiffer(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		k := anyKey(r)
		other := anyKey(r)
		name := rapid.StringMatching(`[a-z0-9._-]{1,15}`).Draw(r, "interface")
		object := ObjectName(k, name)
		if len(object) > maxObject || len(HostName(object)) != 15 || len(AliasOf(k, name)) > maxAlias {
			r.Fatalf("object %s, host name %s, alias %s", object, HostName(object), AliasOf(k, name))
		}
		if name != k.IfName &&
			(object == ObjectName(k, k.IfName) || HolderOf(k, name) == HolderOf(k, k.IfName) ||
				HostName(object) == HostName(ObjectName(k, k.IfName))) {
			r.Fatalf("interface %s of %s is its main one", name, k)
		}
		if k != other && (object == ObjectName(other, name) || HolderOf(k, name) == HolderOf(other, name)) {
			r.Fatalf("interface %s of %s is that of %s", name, k, other)
		}
	})
}

func TestTheLinkLocalAddressIsTheKernels(t *testing.T) {
	mac, err := netaddr.ParseMAC("02:8c:90:cf:64:60")
	if err != nil {
		t.Fatal(err)
	}
	if got := LinkLocalOf(mac).String(); got != "fe80::8c:90ff:fecf:6460" {
		t.Errorf("got %s", got)
	}
}

// The node's end of a veth is known without its alias, and a link with a similar name is not.
func TestUnfinishedVethIsKnownByItsNameAndMAC(t *testing.T) {
	object := ObjectName(pod.Key{Network: "weft", ContainerID: "c0ffee", IfName: "eth0"}, "t1")
	host := HostName(object)
	mac := MACOf(object, HostEnd)
	if got, ifName, ok := VethObject(host, "", mac); !ok || got != host || ifName != "" {
		t.Errorf("the end %s is %q, %q, %v", host, got, ifName, ok)
	}
	other := mac
	other[3]++
	for name, tt := range map[string]struct {
		host string
		mac  netaddr.MAC
	}{
		"another MAC":           {host, other},
		"the dataplane's MAC":   {host, MACOf(object, DataplaneEnd)},
		"another name":          {"veth" + host[4:], mac},
		"a shorter name":        {host[:14], mac},
		"the name of its VLAN":  {host + ".7", mac},
		"a link with no digits": {"weft", mac},
	} {
		if _, _, ok := VethObject(tt.host, "", tt.mac); ok {
			t.Errorf("%s: it is held to be Weft's", name)
		}
	}
}
