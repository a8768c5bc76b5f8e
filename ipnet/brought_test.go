package ipnet_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestStaticAddressOnAnL2NetworkWithoutCIDRs(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("bare", pod.L2))
	a := n.add(t, asking("a", "t1/tap/bare", `{"t1":{"ips":["192.168.5.9/24","fd05::9/64"]}}`))
	if got := a.Interfaces[1]; !reflect.DeepEqual(got.Addresses, prefixes("192.168.5.9/24", "fd05::9/64")) ||
		len(got.Gateways) != 0 || len(got.Routes) != 0 {
		t.Errorf("t1 is %+v", got)
	}
	main := delegate("b", "net1", "", "bare")
	main.Requested.Addresses = prefixes("192.168.5.10/24")
	if got := n.add(t, main).Interfaces[0].Addresses; !reflect.DeepEqual(got, prefixes("192.168.5.10/24")) {
		t.Errorf("addresses of a delegate: %v", got)
	}
	n = n.restarted(t)
	checkRefusal(t, n.refuses(t, asking("c", "t1/tap/bare", `{"t1":{"ips":["192.168.5.9/24"]}}`)), pod.CodeAddressInUse,
		"interface t1: address 192.168.5.9 is held by pod default/a on this node (weft/c0ffee-a/eth0/t1)")
}

func TestInvalidStaticAddressOnAnL2NetworkWithoutCIDRsIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, interfaces, options string
		code                      uint
		want                      string
	}{
		{
			"no prefix length", "t1/tap/bare", `{"t1":{"ips":["192.168.5.9"]}}`, pod.CodeInvalidAnnotation,
			`address 192.168.5.9 needs a prefix length, as in "192.168.5.9/24": network bare has no cidrs`,
		},
		{
			"no prefix length of IPv6", "t1/tap/bare", `{"t1":{"ips":["fd05::9"]}}`, pod.CodeInvalidAnnotation,
			`as in "fd05::9/64"`,
		},
		{
			"the network's own address", "t1/tap/bare", `{"t1":{"ips":["192.168.5.0/24"]}}`, pod.CodeInvalidAnnotation,
			"192.168.5.0/24 cannot be a pod's address",
		},
		{
			"the broadcast address", "t1/tap/bare", `{"t1":{"ips":["192.168.5.127/25"]}}`, pod.CodeInvalidAnnotation,
			"192.168.5.127/25 cannot be a pod's address",
		},
		{
			"multicast", "t1/tap/bare", `{"t1":{"ips":["224.0.0.9/24"]}}`, pod.CodeInvalidAnnotation,
			"cannot be a pod's address",
		},
		{
			"twice in a pod", "t1/tap/bare,t2/tap/bare",
			`{"t1":{"ips":["192.168.5.9/24"]},"t2":{"ips":["192.168.5.9/24"]}}`, pod.CodeAddressInUse,
			"interfaces t1 and t2 of network bare have the same address 192.168.5.9",
		},
		{
			"another pod's", "t1/tap/bare", `{"t1":{"ips":["192.168.5.7/24"]}}`, pod.CodeAddressInUse,
			"address 192.168.5.7 is held by pod default/first on this node",
		},
		{
			"IPv6 with a small MTU", "t1/tap/bare", `{"t1":{"mtu":1000,"ips":["fd05::9/64"]}}`,
			pod.CodeInvalidAnnotation, "MTU 1000 is not within 1280",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			n.set(t, custom("bare", pod.L2), custom("other", pod.L2))
			n.add(t, asking("first", "t1/tap/bare", `{"t1":{"ips":["192.168.5.7/24"]}}`))
			checkRefusal(t, n.refuses(t, asking("second", tt.interfaces, tt.options)), tt.code, tt.want)
			n.add(t, asking("third", "t1/tap/other", `{"t1":{"ips":["192.168.5.7/24"]}}`)) // another network's
		})
	}
}

func TestNewSandboxOfAPodTakesOverItsStaticAddress(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("bare", pod.L2))
	of := func(container string) *pod.AddPod {
		ev := asking("a", "t1/tap/bare", `{"t1":{"ips":["192.168.5.9/24"]}}`)
		ev.Key.ContainerID = container
		ev.Netns.Path = "/run/netns/" + container
		return ev
	}
	n.add(t, of("old"))
	young := of("young")
	if a := n.add(t, young); len(a.Interfaces[1].Addresses) != 1 {
		t.Errorf("addresses of the new sandbox: %v", a.Interfaces[1].Addresses)
	}
	if len(young.HandedOver) != 1 || len(young.HandedOver[0].Interfaces[1].Addresses) != 0 {
		t.Errorf("handed over: %+v", young.HandedOver)
	}
}

// prefixes parses addresses; without a length it is the maximum.
func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := pod.ParseAddress(text)
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	return all
}
