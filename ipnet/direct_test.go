package ipnet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// direct returns an ADD of a pod with the memif m1 on the direct network pair.
func direct(name, options string) *pod.AddPod {
	ev := asking(name, "m1/memif/pair", `{"m1":{`+options+`}}`)
	ev.Grants = []pod.Grant{grant(name, uint32(name[0]), 2)}
	return ev
}

const server = `"role":"server"`

func directNode(t *testing.T, r *ruler) *node {
	c := ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}
	if r != nil {
		c.Pods = attach.Config{Policies: r}
	}
	n := nodeOf(t, c).run(t)
	pair := custom("pair", pod.L2)
	pair.Direct = true
	n.set(t, pair)
	return n
}

// splices returns the splices of a node, and checks that the dataplane has nothing of the network.
func (n *node) splices(t *testing.T) map[string]wire.MemifSplice {
	t.Helper()
	found := make(map[string]wire.MemifSplice)
	for key, v := range n.committer.Values() {
		switch v := v.(type) {
		case wire.MemifSplice:
			found[key] = v
			socket := strings.TrimPrefix(key, wire.KindMemifSplice+"/")
			if file, is := n.committer.Values()[wire.FileKey(socket)].(wire.File); !is || file.On != key ||
				file.Mode != 0o666 {
				t.Errorf("the socket %s has %+v", socket, file)
			}
		case wire.BridgeDomain, wire.MemifSocket:
			t.Errorf("the dataplane has %s", key)
		case wire.Interface:
			if v.Type == wire.TypeMemif {
				t.Errorf("the dataplane has %s", key)
			}
		}
	}
	return found
}

func TestDirectNetworkSplicesItsTwoMembers(t *testing.T) {
	for _, serverFirst := range []bool{true, false} {
		n := directNode(t, nil)
		a := direct("a", server)
		b := direct("b", `"ips":["192.168.1.2/24"]`)
		first := a
		second := b
		if !serverFirst {
			first = b
			second = a
		}
		n.add(t, first)
		if got := n.splices(t); len(got) > 0 {
			t.Fatalf("a single member has %v", got)
		}
		n.add(t, second)
		want := wire.MemifSplice{
			Directory:    wire.FileKey("/run/weft/memif/allocation-of-b"),
			ClientID:     1,
			ClientSecret: "secret of b",
			Namespace:    wire.Namespace(a.Netns),
			Server:       "@weft/m1",
			ServerID:     1,
			ServerSecret: "secret of a",
		}
		key := wire.MemifSpliceKey("/run/weft/memif/allocation-of-b/d1.sock")
		if got := n.splices(t); len(got) != 1 || got[key] != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		n.delete(t, first)
		if got := n.splices(t); len(got) > 0 {
			t.Errorf("after the DEL of a member: %v", got)
		}
		n.add(t, first)
		n.delete(t, second)
		n.delete(t, first)
		if got := n.splices(t); len(got) > 0 {
			t.Errorf("after all DELs: %v", got)
		}
	}
}

func TestDirectNetworkRefusesWhatItCannotConnect(t *testing.T) {
	stateful := direct("a", server)
	stateful.ID.UID = "uid-of-the-next"
	stateful.Key.ContainerID = "c0ffee-next"
	stateful.Netns = pod.Netns{Path: "/run/netns/next", Inode: 7, Device: 4}
	both := asking("c", "m1/memif/two,m2/memif/two", "")
	both.Grants = []pod.Grant{grant("c", 9, 2)}
	for name, tt := range map[string]struct {
		ev   *pod.AddPod
		code uint
		want string
	}{
		"a second server": {
			direct("c", server), pod.CodeInvalidAnnotation,
			"direct network pair has a server on this node already, m1 of pod default/a; it connects one server (option role) and one client",
		},
		"a second client": {
			direct("c", ""), pod.CodeInvalidAnnotation,
			"direct network pair has a client on this node already, m1 of pod default/b",
		},
		"the next pod of a name": {
			stateful, pod.CodeTryAgain,
			"the server of network pair is an earlier pod of this name that is not deleted yet; try again",
		},
		"another mode": {
			asking("c", "m1/memif/half", `{"m1":{"mode":"ip","role":"server"}}`), pod.CodeInvalidAnnotation,
			"mode ip differs from mode ethernet of m1 of pod default/d, to which network half connects it",
		},
		"a tap": {
			asking("c", "t1/tap/pair", ""), pod.CodeInvalidAnnotation,
			"interface t1: network pair is direct: it connects memifs only",
		},
		"two clients of one pod": {
			both, pod.CodeInvalidAnnotation, "interfaces m1 and m2 are both the client of direct network two",
		},
		"a role on other networks": {
			asking("c", "m1/memif", `{"m1":{"role":"client"}}`), pod.CodeInvalidAnnotation,
			"role: only on a direct network; on network default the dataplane is the server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := directNode(t, nil)
			var all []pod.Network
			for _, name := range []string{"pair", "half", "two"} {
				network := custom(name, pod.L2)
				network.Direct = true
				all = append(all, network)
			}
			n.set(t, all...)
			n.add(t, direct("a", server))
			n.add(t, direct("b", ""))
			half := asking("d", "m1/memif/half", "")
			half.Grants = []pod.Grant{grant("d", 11, 1)}
			n.add(t, half)
			checkRefusal(t, n.refuses(t, tt.ev), tt.code, tt.want, "interface")
		})
	}
}

// A policy that selects one member is enough.
func TestDirectNetworkIsDisconnectedWhilePoliciesSelectAMember(t *testing.T) {
	for _, selected := range []string{"a", "b"} {
		r := newRuler()
		n := directNode(t, r)
		r.set(selected, listsFrom("x", "10.0.0.1/32"), "m1")
		n.add(t, direct("a", server))
		n.add(t, direct("b", ""))
		if got := n.splices(t); len(got) > 0 {
			t.Errorf("a policy selects %s, and there is %v", selected, got)
		}
		r.set(selected, listsFrom("x", "10.0.0.1/32"), "eth0")
		n.changePolicies(t)
		if got := n.splices(t); len(got) != 1 {
			t.Errorf("no policy selects m1, and there are %d splices", len(got))
		}
		r.set(selected, listsFrom("x", "10.0.0.1/32"), "m1", "eth0")
		n.changePolicies(t)
		n = n.restarted(t)
		if got := n.splices(t); len(got) > 0 {
			t.Errorf("a policy selects %s again, and after a restart there is %v", selected, got)
		}
	}
}

// The new sandbox of a pod takes its place, and the DEL of the old one does not disconnect it.
func TestNewSandboxTakesOverItsPlaceOnADirectNetwork(t *testing.T) {
	n := directNode(t, nil)
	old := direct("a", server)
	client := direct("b", "")
	n.add(t, old)
	n.add(t, client)
	again := direct("a", server)
	again.Key.ContainerID = "c0ffee-again"
	again.Netns = pod.Netns{Path: "/run/netns/again", Inode: 4026532999, Device: 4}
	n.add(t, again)
	check := func(when string) {
		t.Helper()
		var servers []wire.Namespace
		for _, s := range n.splices(t) {
			servers = append(servers, s.Namespace)
		}
		if !slices.Equal(servers, []wire.Namespace{wire.Namespace(again.Netns)}) {
			t.Errorf("%s the servers are %+v", when, servers)
		}
	}
	check("with two sandboxes")
	n.delete(t, old)
	check("after the DEL of the old sandbox")
	n = n.restarted(t)
	check("after a restart")
}

func TestDirectIsNotChangedWhilePodsUseTheNetwork(t *testing.T) {
	n := directNode(t, nil)
	n.add(t, direct("a", server))
	if why := n.set(t, custom("pair", pod.L2))["pair"]; !strings.Contains(why, "direct cannot change: pod default/a") {
		t.Errorf("refused: %q", why)
	}
}

// Addresses of another plugin come later than their ADD: a policy that selects the pod since then disconnects its
// memif, too.
func TestAddressesOfAMemberBringItsPolicies(t *testing.T) {
	r := newRuler()
	n := directNode(t, r)
	pair := custom("pair", pod.L2)
	pair.Direct = true
	n.set(t, pair, lan(false))
	n.add(t, direct("a", server))
	n.add(t, direct("b", ""))
	second := awaiting("a", pod.TypeTap, "lan")
	second.ID = direct("a", server).ID
	second.Netns = direct("a", server).Netns
	a := n.add(t, second)
	splice := wire.MemifSpliceKey("/run/weft/memif/allocation-of-b/d1.sock")
	if n.committer.Values()[splice] == nil {
		t.Fatal("the members are not connected")
	}
	r.set("a", listsFrom("x", "10.0.0.1/32"), "m1")
	if _, err := n.loop.Do(t.Context(), addressed(a, "10.9.0.2/24", "10.9.0.1")); err != nil {
		t.Fatal(err)
	}
	n.changePolicies(t)
	if n.committer.Values()[splice] != nil {
		t.Error("a policy selects a member, and they are connected")
	}
}
