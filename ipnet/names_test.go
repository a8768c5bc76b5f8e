package ipnet

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/pod"
)

func anyKey(r *rapid.T) pod.Key {
	part := func(most string) string { return rapid.StringMatching(`[a-zA-Z0-9._-]{1,`+most+`}`).Draw(r, "part") }
	return pod.Key{Network: part("20"), ContainerID: part("64"), IfName: part("15")}
}

// TestNamesOfDifferentKeysDiffer also draws keys that differ in where a part ends only.
func TestNamesOfDifferentKeysDiffer(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := anyKey(r), anyKey(r)
		if rapid.Bool().Draw(r, "alike") {
			b = a
			cut := rapid.IntRange(0, len(a.ContainerID)-1).Draw(r, "cut")
			b.Network, b.ContainerID = a.Network+a.ContainerID[:cut], a.ContainerID[cut:]
		}
		nameA, nameB := objectName(a, a.IfName), objectName(b, b.IfName)
		if (a == b) != (nameA == nameB) || (a == b) != (aliasOf(a, a.IfName) == aliasOf(b, b.IfName)) {
			r.Fatalf("%v and %v: names %s and %s, aliases %s and %s", a, b, nameA, nameB, aliasOf(a, a.IfName), aliasOf(b, b.IfName))
		}
		if a != b && macOf(nameA, linuxEnd) == macOf(nameB, linuxEnd) {
			r.Fatalf("%v and %v: the same MAC", a, b)
		}
	})
}

func TestNamesFitWhereTheyGo(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		k := anyKey(r)
		k.Network += strings.Repeat("n", rapid.IntRange(0, 300).Draw(r, "long"))
		name := objectName(k, k.IfName)
		if len(name) > 48 || !strings.HasPrefix(name, "weft-") {
			r.Errorf("object %q", name)
		}
		if alias := aliasOf(k, k.IfName); len(alias) > 255 || !strings.HasPrefix(alias, "weft:") {
			r.Errorf("alias %q", alias)
		}
		linux, dataplane := macOf(name, linuxEnd), macOf(name, dataplaneEnd)
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
	name := objectName(k, k.IfName)
	got := strings.Join([]string{name, aliasOf(k, k.IfName), macOf(name, linuxEnd).String(), macOf(name, dataplaneEnd).String()}, " ")
	if want := "weft-06658372a50578ef-eth0 weft:weft/0123456789ab/eth0 02:8c:90:cf:64:60 06:8c:90:cf:64:60"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
}
