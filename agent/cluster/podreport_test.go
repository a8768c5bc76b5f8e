package cluster

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestAReportIsOfThePodsNewestSandbox(t *testing.T) {
	at := func(name, sandbox, network string, interfaces ...pod.Interface) pod.Attachment {
		return pod.Attachment{
			Key: pod.Key{Network: network, ContainerID: sandbox, IfName: interfaces[0].Name},
			Pod: pod.ID{Namespace: "lab", Name: name}, Interfaces: interfaces,
		}
	}
	eth0 := pod.Interface{
		Name:      "eth0",
		Type:      pod.TypeTap,
		MTU:       1450,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/32")},
	}
	memif := pod.Interface{Name: "m0", Type: pod.TypeMemif, Network: "blue", Memif: &pod.Memif{Container: "app"}}
	bare := at("", "c9", "weft", eth0)
	bare.Pod = pod.ID{}
	got := fmt.Sprint(reportsOf([]pod.Attachment{
		at("a", "c1", "weft", eth0), at("a", "c2", "weft", eth0, memif), at("b", "c3", "weft", eth0), bare,
		at("a", "c2", "other", pod.Interface{Name: "net1", Type: pod.TypeVeth, Network: "blue"}, memif),
	}))
	want := "[{lab/a c2 [{eth0 tap default  1450 [10.1.0.2/32] } {m0 memif blue  0 [] app} {net1 veth blue  0 [] }]} " +
		"{lab/b c3 [{eth0 tap default  1450 [10.1.0.2/32] }]}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
