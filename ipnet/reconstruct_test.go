package ipnet_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// foundOf returns what the machine shows of an attachment, made from its values.
func foundOf(t testing.TB, n *node, a *pod.Attachment) attach.Found {
	t.Helper()
	f := attach.Found{Type: pod.TypeTap, PodEnd: attach.PodEnd{Netns: a.Netns}}
	for _, key := range n.Pods.Objects(a) {
		switch v := n.committer.Values()[key].(type) {
		case wire.TapPeer:
			f.Object = v.Interface
			f.Name = v.Name
			f.Alias = v.Alias
			f.MAC = v.MAC
			f.MTU = v.MTU
		case wire.Interface:
			f.RxQueues = max(v.Tap.Queues, 1)
			f.TxQueues = max(v.Tap.Queues, 1)
		case wire.Neighbour:
			f.Neighbours = append(f.Neighbours, v.Address)
		case wire.LinuxAddress:
			f.Addresses = append([]netip.Prefix{v.Prefix}, f.Addresses...) // the kernel's order differs
		}
	}
	return f
}

// reconstruct is Reconstruct for one interface.
func reconstruct(n *node, f attach.Found) (*pod.Attachment, error) {
	attachments, refused := n.Pods.Reconstruct([]attach.Found{f}, nil)
	if len(attachments) != 1 {
		return nil, refused[f.Object]
	}
	return attachments[0], refused[f.Object]
}

func TestReconstructedAttachmentEqualsTheOriginal(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			again := newNode(t, pools...)
			var attachments []*pod.Attachment
			for i, name := range []string{"a", "b", "c"} {
				ev := sandbox(name)
				ev.Requested.MAC = []netaddr.MAC{{}, {2, 0x11, 0x22, 0x33, 0x44, 0x55}, {}}[i]
				was := n.add(t, ev)
				is, err := reconstruct(again, foundOf(t, n, was))
				if err != nil {
					t.Fatal(err)
				}
				if is.Key != was.Key || is.Netns != was.Netns || !reflect.DeepEqual(is.Interfaces, was.Interfaces) {
					t.Errorf("reconstructed %+v, want %+v", is, was)
				}
				if !is.Pod.IsZero() || !is.Created.Equal(again.now) {
					t.Errorf("pod %v created %v, want both unknown", is.Pod, is.Created)
				}
				attachments = append(attachments, is)
			}
			again.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: attachments}})
			again.run(t)
			if got, want := list(t, again.committer.Values()), list(t, n.committer.Values()); got != want {
				t.Errorf("values\n%s\nwant\n%s", got, want)
			}
			stats, _ := n.Networks.Addresses()
			if got, _ := again.Networks.Addresses(); !reflect.DeepEqual(got, stats) {
				t.Errorf("addresses %v, want %v", got, stats)
			}
			for _, name := range []string{"a", "b", "c"} {
				again.delete(t, sandbox(name))
			}
			if got, want := list(t, again.committer.Values()), list(t,
				newNode(t, pools...).run(t).committer.Values()); got != want {
				t.Errorf("after all DELs\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestAmbiguousInterfaceIsNotReconstructed(t *testing.T) {
	n := newNode(t, four, six).run(t)
	intact := foundOf(t, n, n.add(t, sandbox("a")))
	prefix := netip.MustParsePrefix
	for name, tt := range map[string]struct {
		change func(*attach.Found)
		want   string // in the error; "" = none
	}{
		"no alias":         {func(f *attach.Found) { f.Alias = "" }, "does not name an attachment"},
		"a foreign alias":  {func(f *attach.Found) { f.Alias = "eth0 of a" }, "does not name an attachment"},
		"the node's alias": {func(f *attach.Found) { f.Alias = "weft:host" }, "does not name an attachment"},
		"only a hash": {
			func(f *attach.Found) { f.Alias = "weft:sha256:00ff" }, "does not name an attachment",
		},
		"an extra's alias":       {func(f *attach.Found) { f.Alias += "/more" }, "alias of another interface"},
		"an alias of five parts": {func(f *attach.Found) { f.Alias += "/more/still" }, "does not name an attachment"},
		"an alias without a part": {
			func(f *attach.Found) { f.Alias = "weft:weft//eth0" }, "does not name an attachment",
		},
		"another pod's alias": {
			func(f *attach.Found) { f.Alias = "weft:weft/other/eth0" }, "alias of another interface",
		},
		"a renamed link": {func(f *attach.Found) { f.Name = "eth1" }, "alias of another interface"},
		"no MAC":         {func(f *attach.Found) { f.MAC = netaddr.MAC{} }, "Weft configured other values"},
		"no address": {func(f *attach.Found) {
			f.Addresses = nil
			f.Neighbours = nil
		}, "no address"},
		"another address of a pool": {
			func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.1.0.9/32")) }, "",
		},
		"no address in the pod": {func(f *attach.Found) { f.Addresses = nil }, ""},
		"no neighbours":         {func(f *attach.Found) { f.Neighbours = nil }, ""},
		"two addresses of a pool, and no neighbours": {func(f *attach.Found) {
			f.Addresses = append(f.Addresses, prefix("10.1.0.9/32"))
			f.Neighbours = nil
		}, "cannot tell which"},
		"the pod's own address": {func(f *attach.Found) {
			f.Addresses = append(f.Addresses, prefix("192.168.7.7/32"))
			f.Neighbours = nil
		}, ""},
		"the pod's own network": {
			func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.1.0.9/28")) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := intact
			f.Addresses = append([]netip.Prefix(nil), intact.Addresses...)
			tt.change(&f)
			a, err := reconstruct(newNode(t, four, six), f)
			if tt.want == "" && (err != nil || len(a.Interfaces[0].Addresses) != 2) {
				t.Errorf("got %+v, error %v", a, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %+v, error %v, want %q", a, err, tt.want)
			}
		})
	}
}

func TestWithheldAddressesAreNotAllocated(t *testing.T) {
	n := newNode(t, four, six).run(t)
	f := foundOf(t, n, n.add(t, sandbox("a")))
	again := newNode(t, four, six)
	f.Addresses = append(f.Addresses, netip.MustParsePrefix("10.1.0.3/28"), netip.MustParsePrefix("192.168.7.7/32"))
	again.Networks.WithholdAddresses(f.Object, f.All())
	again.run(t)
	if got := again.add(t, sandbox("b")).Interfaces[0].Addresses; got[0].String() != "10.1.0.4/32" ||
		got[1] == f.Addresses[0] {
		t.Errorf("the next pod gets %v, but %v are withheld", got, f.Addresses)
	}
}

func TestWithheldAddressesAreNotAllocatedByNetworksEither(t *testing.T) {
	n := newNode(t, four)
	n.Networks.WithholdAddresses("weft-lost",
		attach.Found{PodEnd: attach.PodEnd{
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.2/24"), netip.MustParsePrefix("10.5.0.3/24")},
		}}.All())
	n.run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/24"), custom("red", pod.L3, "10.5.0.0/24"))
	for name, want := range map[string]string{"blue": "10.5.0.4/24", "red": "10.5.0.4/32"} {
		if got := n.add(t, asking(name, "x/tap/"+name, "")).Interfaces[1].Addresses[0].String(); got != want {
			t.Errorf("address of the next pod on %s: %s, want %s", name, got, want)
		}
	}
}

func TestOnlyAddressOutsideOfAllPoolsIsReconstructed(t *testing.T) {
	n := newNode(t, four).run(t)
	f := foundOf(t, n, n.add(t, sandbox("a")))
	other := newNode(t, netaddr.Pool{Name: "other", Prefix: netip.MustParsePrefix("10.7.0.0/28")})
	a, err := reconstruct(other, f)
	if err != nil || len(a.Interfaces[0].Addresses) != 1 || a.Interfaces[0].Pools[0] != "" {
		t.Errorf("got %+v, error %v", a, err)
	}
}

func TestAnyAliasReconstructsOnlyFoundAddresses(t *testing.T) {
	n := newNode(t, four).run(t)
	intact := foundOf(t, n, n.add(t, sandbox("a")))
	again := newNode(t, four)
	rapid.Check(t, func(t *rapid.T) {
		f := intact
		f.Alias = rapid.OneOf(rapid.String(), rapid.StringMatching(`weft:[a-z/:#]{0,12}`),
			rapid.Just(intact.Alias)).Draw(t, "alias")
		if a, err := reconstruct(again, f); (err == nil) != (f.Alias == intact.Alias) {
			t.Errorf("alias %q: %+v, error %v", f.Alias, a, err)
		}
	})
}
