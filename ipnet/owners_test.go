package ipnet_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// ofAttachments returns the owners of all objects of pods.
func (n *node) ofAttachments(attachments ...*pod.Attachment) map[string]pod.Owners {
	var all []pod.Attachment
	for _, a := range attachments {
		all = append(all, *a)
	}
	return n.Pods.Owners(all)
}

// Each object that an ADD makes belongs to one of the interfaces of its pod, for each type of interface on each kind of
// network.
func TestEachObjectOfAPodBelongsToItsInterface(t *testing.T) {
	kinds := map[string]bool{}
	for _, network := range []string{"default", "stub", "L2", "L3"} {
		for _, kind := range []string{pod.TypeTap, pod.TypeVeth, pod.TypeMemif} {
			t.Run(kind+" on "+network, func(t *testing.T) {
				n := newNode(t, four, six).run(t)
				on := network
				if network == "L2" || network == "L3" {
					n.set(t, custom("blue", pod.NetworkType(network), cidrs["dual"]...))
					on = "blue"
				}
				before := n.committer.Values()
				a := n.add(t, asking("a", "x1/"+kind+"/"+on, ""))
				owners := n.ofAttachments(a)
				for key := range without(n.committer.Values(), before) {
					kinds[strings.Split(key, "/")[0]] = true
					checkOwner(t, a, key, owners[key])
				}
				for key := range owners {
					if _, is := n.committer.Values()[key]; !is {
						t.Errorf("%s is no object", key)
					}
				}
			})
		}
	}
	if len(kinds) < 15 {
		t.Errorf("only objects of the kinds %v were made", slices.Sorted(maps.Keys(kinds)))
	}
}

// checkOwner checks the owner of an object of a pod with the interfaces eth0 and x1.
func checkOwner(t *testing.T, a *pod.Attachment, key string, owners pod.Owners) {
	t.Helper()
	want := "eth0"
	for _, i := range a.Interfaces[1:] {
		for _, p := range i.Addresses {
			if strings.Contains(key, p.Addr().String()) && !strings.Contains(key, a.Interfaces[0].Object) {
				want = i.Name
			}
		}
		marks := []string{i.Object, i.MAC.String(), "weft:blue/", "weft-gw-blue/"}
		if i.Memif != nil {
			marks = append(marks, i.Memif.Allocation)
		}
		if slices.ContainsFunc(marks, func(mark string) bool { return mark != "" && strings.Contains(key, mark) }) {
			want = i.Name
		}
	}
	if got := owners.String(); got != "default/a:"+want {
		t.Errorf("%s belongs to %q, not to %s", key, got, want)
	}
}

// A splice belongs to both ends, and an ACL to all interfaces with its rules.
func TestSharedObjectsBelongToAllTheirInterfaces(t *testing.T) {
	r := newRuler()
	n := directNode(t, r)
	for _, name := range []string{"a", "b"} {
		r.set(name, listsFrom("x", "10.0.0.1/32"), "eth0")
	}
	before := n.committer.Values()
	a := n.add(t, direct("a", server))
	b := n.add(t, direct("b", ""))
	owners := n.ofAttachments(a, b)
	found := 0
	for key := range without(n.committer.Values(), before) {
		kind, _, _ := strings.Cut(key, "/")
		if len(owners[key]) == 0 {
			t.Errorf("%s belongs to no interface", key)
		}
		want, isShared := map[string]string{
			wire.KindMemifSplice: "default/a:m1, default/b:m1", wire.KindACL: "default/a:eth0, default/b:eth0",
		}[kind]
		if !isShared {
			continue
		}
		found++
		if got := owners[key].String(); got != want {
			t.Errorf("%s belongs to %s", key, got)
		}
	}
	if found != 3 {
		t.Errorf("%d shared objects, not a splice and an ACL of each direction", found)
	}
}

func TestOwnersOfACommonObjectAreCounted(t *testing.T) {
	var all pod.Owners
	for i := range 5 {
		all = append(all, pod.Owner{Pod: pod.ID{Namespace: "shop", Name: fmt.Sprint("p", i)}, Interface: "eth0"})
	}
	if got := all.Named("vpp.acl/x"); got != "vpp.acl/x of shop/p0:eth0, shop/p1:eth0, shop/p2:eth0 and 2 more" {
		t.Error(got)
	}
	if got := (pod.Owners{{ContainerID: "0123456789abcdef", Interface: "eth0"}}).Named(
		"k"); got != "k of 0123456789ab:eth0" {
		t.Error(got)
	}
	if got := pod.Owners(nil).Named("vpp.vrf/x"); got != "vpp.vrf/x" {
		t.Error(got)
	}
}
