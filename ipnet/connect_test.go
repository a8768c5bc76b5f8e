package ipnet_test

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

func TestRecordOfTheMainInterface(t *testing.T) {
	n := newNode(t, four, six).run(t)
	ev := sandbox("a")
	ev.Requested = pod.Requested{
		Addresses: prefixes("2001:db8:1::99", "10.1.0.9"),
		MAC:       netaddr.MAC{0x0a, 0, 0, 0, 0, 1},
	}
	main := n.add(t, ev).Interfaces[0]
	want := pod.Interface{
		Name: "eth0", Type: "tap", Object: main.Object, MAC: netaddr.MAC{0x0a, 0, 0, 0, 0, 1}, MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.9/32"), netip.MustParsePrefix("2001:db8:1::99/128")},
		Pools:     []string{"default4", "default6"},
		Gateways:  []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
		Routes: []pod.Route{
			{Destination: netip.MustParsePrefix("169.254.1.1/32")},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("169.254.1.1")},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fe80::1")},
		},
	}
	if !reflect.DeepEqual(main, want) {
		t.Errorf("main interface\n%+v, want\n%+v", main, want)
	}
	if values := list(t, n.committer.Values()); strings.Count(values, `"mac":"0a:00:00:00:00:01"`) < 4 {
		t.Errorf("a value lacks the requested MAC:\n%s", values)
	}
}

func TestRefusedPodsLeaveNothingAndHaveAReason(t *testing.T) {
	requested := func(addresses ...string) pod.Requested {
		var r pod.Requested
		for _, a := range addresses {
			r.Addresses = append(r.Addresses, prefixes(a)...)
		}
		return r
	}
	asking := func(r pod.Requested) func(*pod.AddPod) { return func(ev *pod.AddPod) { ev.Requested = r } }
	tests := []struct {
		name string
		ask  func(*pod.AddPod)
		code uint
		want string
	}{
		{
			"an address of another pod names it", asking(requested("10.1.0.2")), pod.CodeAddressInUse,
			"address 10.1.0.2 is held by pod default/first on this node (weft/c0ffee-first/eth0)",
		},
		{
			"the node's address names the node", asking(requested("10.1.0.1")), pod.CodeAddressInUse,
			"address 10.1.0.1 is held by node",
		},
		{
			"an address of no pool", asking(requested("10.9.0.1")), pod.CodeUnknownNetwork,
			"address 10.9.0.1 is in no pool",
		},
		{
			"a reserved address", asking(requested("10.1.0.15")), pod.CodeUnknownNetwork,
			"address 10.1.0.15 of pool default4 is reserved",
		},
		{
			"two addresses of a family", asking(requested("10.1.0.4", "10.1.0.5")), pod.CodeInvalidConfig,
			"more than one address of a family",
		},
		{
			"a valid address and one in use", asking(requested("10.1.0.5", "2001:db8:1::1")), pod.CodeAddressInUse,
			"address 2001:db8:1::1 is held by node",
		},
		{
			"another pod's MAC names it", asking(pod.Requested{MAC: netaddr.MAC{0x0a, 0, 0, 0, 0, 1}}),
			pod.CodeAddressInUse,
			"held by pod default/first (weft/c0ffee-first/eth0)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four, six).run(t)
			first := sandbox("first")
			first.Requested.MAC = netaddr.MAC{0x0a, 0, 0, 0, 0, 1}
			n.add(t, first)
			before := n.state(t)
			ev := sandbox("second")
			tt.ask(ev)
			_, err := n.loop.Do(context.Background(), ev)
			checkRefusal(t, err, tt.code, tt.want, "add pod default/second")
			if after := n.state(t); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func checkRefusal(t *testing.T, err error, code uint, parts ...string) {
	t.Helper()
	refusal, ok := errors.AsType[*pod.Error](err)
	if !ok || refusal.Code != code {
		t.Fatalf("error %v, want code %d", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(refusal.Error(), part) || strings.Contains(refusal.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", refusal, part)
		}
	}
}

func TestGatewaysMACIsRefused(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := sandbox("a")
	gateway := n.add(t, ev).Interfaces[0].MAC
	gateway[0] = 0x06
	n.delete(t, ev)
	ev.Requested.MAC = gateway
	_, err := n.loop.Do(context.Background(), ev)
	checkRefusal(t, err, pod.CodeAddressInUse, gateway.String()+" is the gateway's")
}

func TestErrorOfAnExhaustedPoolSaysWhetherWaitingHelps(t *testing.T) {
	small := netaddr.Pool{Name: "small", Prefix: netip.MustParsePrefix("10.2.0.0/30")}
	n := newNode(t, small).run(t)
	first := sandbox("first")
	second := sandbox("second")
	n.add(t, first)
	_, err := n.loop.Do(context.Background(), second)
	checkRefusal(t, err, pod.CodePoolExhausted,
		"pool exhausted: all addresses of pool small are held, 1 by this node; delete pods, or give the node another pool")

	n.delete(t, first)
	n.now = n.now.Add(18 * time.Second)
	_, err = n.loop.Do(context.Background(), second)
	checkRefusal(t, err, pod.CodeTryAgain, "pool small is free, 1 cooling down, the next is free in 12s")

	n.now = n.now.Add(12 * time.Second)
	if got := n.add(t, second).Interfaces[0].Addresses[0].String(); got != "10.2.0.2/32" {
		t.Errorf("address after the cool-down is %s", got)
	}
}

func TestRepeatedAddChangesNothing(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := sandbox("a")
	a := n.add(t, ev)
	before := n.state(t)
	again := sandbox("a")
	again.Repeated = true
	again.Attachment = a
	n.add(t, again)
	if after := n.state(t); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestSecondSandboxOfAPodExistsBesideTheFirst(t *testing.T) {
	n := newNode(t, four).run(t)
	first := sandbox("a")
	second := sandbox("a")
	second.Key.ContainerID = "newer"
	second.Netns = pod.Netns{Path: "/run/netns/newer", Inode: 7, Device: 4}
	old := n.add(t, first)
	young := n.add(t, second)
	if old.Interfaces[0].Addresses[0] == young.Interfaces[0].Addresses[0] {
		t.Errorf("both have %s", young.Interfaces[0].Addresses[0])
	}
	n.delete(t, first)
	values := n.committer.Values()
	for _, key := range n.Pods.Objects(young) {
		if values[key] == nil {
			t.Errorf("the late DEL of the old sandbox deleted %s of the new one", key)
		}
	}
}

func TestDELOfOneInterfaceKeepsObjectsOfAnotherInTheNamespace(t *testing.T) {
	n := newNode(t, four).run(t)
	first := sandbox("a")
	second := sandbox("a")
	second.Key.IfName = "net1"
	n.add(t, first)
	young := n.add(t, second)
	n.delete(t, first)
	values := n.committer.Values()
	for _, key := range n.Pods.Objects(young) {
		if values[key] == nil {
			t.Errorf("the DEL of one interface deleted %s of the other", key)
		}
	}
	n.delete(t, second)
	for _, key := range n.Pods.Objects(young) {
		if n.committer.Values()[key] != nil {
			t.Errorf("%s is left over", key)
		}
	}
}

func TestNewNamespaceAtThePathOfAnOldOneReplacesItsAttachment(t *testing.T) {
	n := newNode(t, four).run(t)
	first := sandbox("a")
	second := sandbox("a")
	second.Key.ContainerID = "newer"
	second.Netns.Inode++
	old := n.add(t, first)
	n.fail = true
	before := n.state(t)
	if _, err := n.loop.Do(context.Background(), second); err == nil {
		t.Fatal("the later handler did not fail")
	}
	if after := n.state(t); after != before {
		t.Errorf("undone: before\n%s\nafter\n%s", before, after)
	}
	n.fail = false
	n.now = n.now.Add(time.Second) // a restart distinguishes them by age
	young := n.add(t, second)
	n.checkDisplaced(t, old, young)

	again := newNode(t, four)
	again.Restore(n.kept())
	again.run(t)
	again.checkDisplaced(t, old, young)

	n.delete(t, first)
	n.checkDisplaced(t, old, young)
	n.delete(t, second)
	for _, key := range n.Pods.Objects(young) {
		if n.committer.Values()[key] != nil {
			t.Errorf("%s is left over", key)
		}
	}
}

func (n *node) checkDisplaced(t *testing.T, old, young *pod.Attachment) {
	t.Helper()
	values := n.committer.Values()
	current := n.Pods.Objects(young)
	for _, key := range current {
		if values[key] == nil {
			t.Errorf("%s of the new sandbox is missing", key)
		}
	}
	for _, key := range n.Pods.Objects(old) {
		if values[key] != nil && !slices.Contains(current, key) {
			t.Errorf("%s of the old sandbox is still desired", key)
		}
	}
}
