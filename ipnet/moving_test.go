package ipnet_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// moving returns a network with addresses that move between its pods.
func moving(t *testing.T, cidrs ...string) pod.Network {
	t.Helper()
	n := custom("blue", pod.L2, cidrs...)
	n.AntiSpoof = true
	n.VirtualRouters = []int{51}
	r, err := netaddr.ParseRange("10.5.0.4-10.5.0.7")
	if err != nil {
		t.Fatal(err)
	}
	n.AllowedAddresses = netaddr.Ranges{r}
	return n
}

func TestInterfacesSendFromAddressesThatMove(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, moving(t, "10.5.0.0/28"))
	a := n.add(t, asking("a", "t1/tap/blue, t2/tap/blue", `{
		"t1": {"mac": "02:00:00:00:00:01", "allowedAddresses": ["10.5.0.4", "10.5.0.6/31"], "virtualRouters": [51]},
		"t2": {"mac": "02:00:00:00:00:02"}}`))
	var fromOwn []string
	for _, mac := range []string{"02:00:00:00:00:01", "00:00:5e:00:01:33", "00:00:5e:00:02:33"} {
		for _, source := range []string{"10.5.0.2/32", "10.5.0.4/32", "10.5.0.6/31", "fe80::ff:fe00:1/128"} {
			fromOwn = append(fromOwn, "{"+mac+" "+source+"}")
		}
	}
	want := []string{
		fmt.Sprint(fromOwn),
		"[{02:00:00:00:00:02 10.5.0.3/32} {02:00:00:00:00:02 fe80::ff:fe00:2/128}]",
	}
	check := func(when string) {
		t.Helper()
		for at, i := range a.Interfaces[1:] {
			rules, _ := n.committer.Values()[wire.MACIPKey(i.Object)].(wire.MACIP)
			if got := fmt.Sprint(rules.Rules); got != want[at] {
				t.Errorf("%s: sources of %s: %s, want %s", when, i.Name, got, want[at])
			}
		}
	}
	check("made")
	bare := moving(t, "10.5.0.0/28")
	bare.AllowedAddresses = nil
	n.set(t, bare)
	n = n.restarted(t)
	check("after the network stopped to permit them")
}

func TestNoPodGetsAnAddressThatMoves(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, moving(t, "10.5.0.0/28"))
	var got []string
	for at := range 4 {
		a := n.add(t, asking(fmt.Sprint("p", at), "t1/tap/blue", ""))
		got = append(got, a.Interfaces[1].Addresses[0].Addr().String())
	}
	if want := "[10.5.0.2 10.5.0.3 10.5.0.8 10.5.0.9]"; fmt.Sprint(got) != want {
		t.Errorf("addresses %v, want %s", got, want)
	}
	for _, tt := range []struct {
		options string
		code    uint
		want    string
	}{
		{`{"t1": {"ips": ["10.5.0.5"]}}`, pod.CodeUnknownNetwork, "is reserved"},
		{`{"t1": {"allowedAddresses": ["10.5.0.3"]}}`, pod.CodeInvalidAnnotation, "blue does not permit 10.5.0.3/32"},
		{`{"t1": {"virtualRouters": [52]}}`, pod.CodeInvalidAnnotation, "network blue does not permit 52"},
	} {
		checkRefusal(t, n.refuses(t, asking("refused", "t1/tap/blue", tt.options)), tt.code, tt.want)
	}
}

// The network permits an address that a pod has.
func TestAnAddressOfAPodDoesNotMove(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/28"))
	n.add(t, asking("owner", "t1/tap/blue", `{"t1": {"ips": ["10.5.0.5"], "mac": "00:00:5e:00:01:33"}}`))
	n.set(t, moving(t, "10.5.0.0/28"))
	thief := asking("thief", "t1/tap/blue", `{"t1": {"allowedAddresses": ["10.5.0.4/31"]}}`)
	checkRefusal(t, n.refuses(t, thief), pod.CodeAddressInUse, "address 10.5.0.5 is held by pod default/owner")
	thief = asking("thief", "t1/tap/blue", `{"t1": {"virtualRouters": [51]}}`)
	checkRefusal(t, n.refuses(t, thief), pod.CodeAddressInUse, "MAC 00:00:5e:00:01:33 of virtual router 51 is held by")
	n.delete(t, asking("owner", "", ""))
	n.set(t, custom("blue", pod.L2, "10.5.0.0/28"))
	n.add(t, asking("owner6", "t1/tap/blue", `{"t1": {"mac": "00:00:5e:00:02:33"}}`))
	n.set(t, moving(t, "10.5.0.0/28"))
	checkRefusal(t, n.refuses(t, thief), pod.CodeAddressInUse, "MAC 00:00:5e:00:02:33 of virtual router 51 is held by")
	n.add(t, asking("other", "t1/tap/blue", `{"t1": {"allowedAddresses": ["10.5.0.6/31"]}}`))
}

func TestAnAddressThatMovesIsNotBrought(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, moving(t))
	brought := asking("a", "t1/tap/blue", `{"t1": {"ips": ["10.5.0.5/24"]}}`)
	checkRefusal(t, n.refuses(t, brought), pod.CodeAddressInUse, "allowedAddresses of network blue, which move")
	n.add(t, asking("b", "t1/tap/blue", `{"t1": {"ips": ["10.5.0.9/24"]}}`))
}

// A program in the pod added the address of its virtual router to the link.
func TestAnAddressThatMovesIsNotReconstructedAsThatOfAPod(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, moving(t, "10.5.0.0/28"))
	was := n.add(t, asking("a", "t1/tap/blue", ""))
	numbers, found := everything(t, n, was)
	for i, f := range found {
		if f.Name == "t1" {
			found[i].Addresses = append(f.Addresses, netip.MustParsePrefix("10.5.0.6/28"))
		}
	}
	again := newNode(t, four)
	again.Networks.Recognise([]pod.Network{moving(t, "10.5.0.0/28")}, numbers)
	attachments, refused := again.Pods.Reconstruct(found, nil)
	if len(refused) > 0 || len(attachments) != 1 || !reflect.DeepEqual(attachments[0].Interfaces, was.Interfaces) {
		t.Errorf("got %+v, refused %v, want %+v", attachments, refused, was.Interfaces)
	}
}

// A change of the labels of pods changes the permissions, also while another change of the network is refused.
func TestPermissionsFollowThePodsThatAreSelected(t *testing.T) {
	n := newNode(t, four).run(t)
	permitting := func(names ...string) pod.Network {
		network := custom("blue", pod.L2, "10.5.0.0/28")
		network.AntiSpoof = true
		p := pod.Permission{Moving: pod.Moving{
			Addresses:      []netip.Prefix{netip.MustParsePrefix("10.5.0.4/32")},
			VirtualRouters: []int{51},
		}}
		for _, name := range names {
			p.Pods = append(p.Pods, pod.ID{Namespace: "default", Name: name})
		}
		network.Permissions = []pod.Permission{p}
		return network
	}
	n.set(t, permitting())
	const options = `{"t1": {"mac": "02:00:00:00:00:01"}}`
	a := n.add(t, asking("a", "t1/tap/blue", options))
	b := n.add(t, asking("b", "t1/tap/blue", `{"t1": {"mac": "02:00:00:00:00:02"}}`))
	has := func(at *pod.Attachment) bool {
		rules, _ := n.committer.Values()[wire.MACIPKey(at.Interfaces[1].Object)].(wire.MACIP)
		text := fmt.Sprint(rules.Rules)
		return strings.Contains(text, "10.5.0.4/32") && strings.Contains(text, "00:00:5e:00:01:33")
	}
	check := func(when string, ofA, ofB bool) {
		t.Helper()
		if has(a) != ofA || has(b) != ofB {
			t.Errorf("%s: a and b have the permission: %t, %t, want %t, %t", when, has(a), has(b), ofA, ofB)
		}
	}
	check("without labels", false, false)
	n.set(t, permitting("a"))
	check("a is selected", true, false)
	n.set(t, permitting("b"))
	check("b is selected", false, true)
	n = n.restarted(t)
	check("after a restart", false, true)
	other := permitting("a")
	other.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.6.0.0/28")}
	n.set(t, other)
	check("the change of the CIDRs is refused", true, false)
	if c := n.Networks.Custom("blue"); c.Network.CIDRs[0].String() != "10.5.0.0/28" {
		t.Errorf("the network has %v although pods use it", c.Network.CIDRs)
	}
	if got := fmt.Sprint(n.Pods.MovingOf(a.Pod, a.Interfaces[1]).Texts()); got != "[10.5.0.4 virtual router 51]" {
		t.Errorf("shown for a: %s", got)
	}
	refused := asking("c", "t1/tap/blue", `{"t1": {"ips": ["10.5.0.4"]}}`)
	checkRefusal(t, n.refuses(t, refused), pod.CodeUnknownNetwork, "is reserved")
}
