package ipnet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

var (
	four = netaddr.Pool{Name: "default4", Prefix: netip.MustParsePrefix("10.1.0.0/28")}
	six  = netaddr.Pool{Name: "default6", Prefix: netip.MustParsePrefix("2001:db8:1::/64")}

	families = map[string][]netaddr.Pool{"ip4": {four}, "ip6": {six}, "dual": {four, six}}
)

const coolDown = 30 * time.Second

var errLater = errors.New("a later handler fails")

// node is a Network with its own event loop, with a pod manager before it and one handler after it.
type node struct {
	*ipnet.Network
	config    ipnet.Config
	loop      *eventloop.Loop
	committer *eventlooptest.Committer
	saver     *eventlooptest.Saver
	now       time.Time
	fail      bool // the handler after the network fails
}

func newNode(t testing.TB, pools ...netaddr.Pool) *node {
	t.Helper()
	return nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: pools}})
}

func nodeOf(t testing.TB, config ipnet.Config) *node {
	t.Helper()
	n := &node{
		config:    config,
		committer: &eventlooptest.Committer{},
		saver:     &eventlooptest.Saver{},
		now:       time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	config.Pods.Secret = secretOf
	config.Pods.DelegatedCIDRs = []netip.Prefix{
		netip.MustParsePrefix("10.7.0.0/24"), netip.MustParsePrefix("fd00:7::/64"),
	}
	config.Networks.CoolDown = coolDown
	config.Networks.Now = func() time.Time { return n.now }
	var err error
	if n.Network, err = ipnet.New(config); err != nil {
		t.Fatal(err)
	}
	return n
}

// run starts the loop; every event is verified: a rebuild of all desired values must equal the result of the updates.
func (n *node) run(t testing.TB) *node {
	t.Helper()
	n.loop = eventloop.New(eventloop.Config{
		Committer: n.committer, Saver: n.saver, Verify: true,
		OnVerify: func(found []string) { t.Errorf("a resync differs from the updates: %v", found) },
	})
	eventloop.On(n.loop, "pods", func(_ context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
		if !ev.Repeated {
			ev.Attachment = &pod.Attachment{
				Key: ev.Key, Pod: ev.ID, Netns: ev.Netns, Created: n.now.Add(-time.Second), Annotations: ev.Annotations,
			}
			txn.Save("attachments", ev.Key.String(), ev.Attachment)
		}
		return nil
	})
	eventloop.On(n.loop, "pods", func(_ context.Context, ev *pod.DeletePod, txn *eventloop.Txn) error {
		txn.Save("attachments", ev.Key.String(), nil)
		return nil
	})
	eventloop.On(n.loop, "pods", func(_ context.Context, ev *pod.AddressPod, txn *eventloop.Txn) error {
		txn.Save("attachments", ev.Key.String(), ev.Attachment)
		return nil
	})
	eventloop.On(n.loop, "pods", func(_ context.Context, ev *pod.ChangePod, txn *eventloop.Txn) (err error) {
		before := n.saver.Bucket("attachments")[ev.Key.String()].(*pod.Attachment)
		if ev.Changes, err = pod.ChangesOf(before, &ev.Request); err != nil {
			return err
		}
		after := *before
		after.Annotations = ev.Annotations
		ev.Attachment = &after
		txn.Save("attachments", ev.Key.String(), ev.Attachment)
		return nil
	})
	n.Register(n.loop)
	eventloop.On(n.loop, "later", func(context.Context, *pod.AddPod, *eventloop.Txn) error { return n.later() })
	eventloop.On(n.loop, "later", func(context.Context, *pod.ChangePod, *eventloop.Txn) error { return n.later() })
	eventlooptest.Ready(t, n.loop)
	t.Cleanup(func() { requireNamedACLs(t, n.committer.Values()) })
	return n
}

// requireNamedACLs requires each ACL that an interface names: without it the pod of the interface does not start.
func requireNamedACLs(t testing.TB, values map[string]any) {
	t.Helper()
	for key, value := range values {
		named, is := value.(wire.InterfaceACL)
		if !is {
			continue
		}
		for _, label := range append(slices.Clone(named.Input), named.Output...) {
			if values[wire.ACLKey(label)] == nil {
				t.Errorf("%s names ACL %s, which is not desired", key, label)
			}
		}
	}
}

// later handles an event after the network.
func (n *node) later() error {
	if n.fail {
		return errLater
	}
	return nil
}

func (n *node) add(t testing.TB, ev *pod.AddPod) *pod.Attachment {
	t.Helper()
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Attachment
}

func (n *node) delete(t rapid.TB, ev *pod.AddPod) {
	t.Helper()
	if _, err := n.loop.Do(context.Background(), &pod.DeletePod{Key: ev.Key, Reason: "DEL"}); err != nil {
		t.Fatalf("delete %s: %v", ev.Key, err)
	}
}

// set replaces the networks of the node and returns the refused changes with reasons.
func (n *node) set(t rapid.TB, networks ...pod.Network) map[string]string {
	t.Helper()
	ev := &pod.SetNetworks{Networks: networks, From: "test"}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Refused
}

// refuses tries to add a pod and returns the error; it fails the test if the ADD succeeds or changes something.
func (n *node) refuses(t rapid.TB, ev eventloop.Event) error {
	t.Helper()
	before := n.state(t)
	_, err := n.loop.Do(context.Background(), ev)
	if err == nil {
		t.Fatalf("%s: succeeded", ev)
	}
	if after := n.state(t); after != before {
		t.Errorf("%s: refused (%v), but before\n%s\nafter\n%s", ev, err, before, after)
	}
	return err
}

// kept returns the saved state, as a restarted agent reads it.
func (n *node) kept() ipnet.Saved {
	var kept ipnet.Saved
	kept.Rules, kept.Lists = n.keptRules()
	for _, a := range inOrder(n.saver.Bucket("attachments")) {
		kept.Attachments = append(kept.Attachments, a.(*pod.Attachment))
	}
	for _, l := range inOrder(n.saver.Bucket("leases")) {
		kept.Leases = append(kept.Leases, l.(ipam.Lease))
	}
	for _, s := range inOrder(n.saver.Bucket("networks")) {
		kept.Networks = append(kept.Networks, s.(networks.SavedNetwork))
	}
	for _, s := range inOrder(n.saver.Bucket("blocks")) {
		kept.Blocks = append(kept.Blocks, s.(networks.SavedBlock))
	}
	for _, s := range inOrder(n.saver.Bucket("pools")) {
		pools := s.(networks.SavedPools)
		kept.Pools = &pools
	}
	for _, s := range inOrder(n.saver.Bucket("nodes")) {
		kept.Nodes = append(kept.Nodes, s.(mesh.SavedNode))
	}
	for _, e := range inOrder(n.saver.Bucket("externals")) {
		kept.Externals = append(kept.Externals, e.(pod.External))
	}
	return kept
}

// ofPods removes the node's own leases, which are allocated again at each start.
func ofPods(leases []ipam.Lease) []ipam.Lease {
	return slices.DeleteFunc(leases, func(l ipam.Lease) bool { return l.State == ipam.Internal })
}

func inOrder(bucket map[string]any) []any {
	var values []any
	for _, key := range slices.Sorted(maps.Keys(bucket)) {
		values = append(values, bucket[key])
	}
	return values
}

// state returns everything that an event can change: values, leases, and the saved state.
func (n *node) state(t rapid.TB) string {
	t.Helper()
	stats, leases := n.Networks.Addresses()
	all := list(t, n.committer.Values())
	for _, bucket := range []string{"attachments", "leases", "networks", "nodes", "blocks", "pools", "externals"} {
		all += list(t, n.saver.Bucket(bucket))
	}
	return all + fmt.Sprint(stats, leases)
}

// list returns values as lines "key value", sorted by key.
func list(t rapid.TB, values map[string]any) string {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value, err := json.Marshal(values[key])
		if err != nil {
			t.Fatalf("value of %s: %v", key, err)
		}
		fmt.Fprintf(&b, "%s %s\n", key, value)
	}
	return b.String()
}

// custom returns a network with these CIDRs.
func custom(name string, kind pod.NetworkType, cidrs ...string) pod.Network {
	n := pod.Network{Name: name, Type: kind}
	for _, c := range cidrs {
		n.CIDRs = append(n.CIDRs, netip.MustParsePrefix(c))
	}
	return n
}

// asking returns an ADD of the pod with that name, which requests these extra interfaces.
func asking(name, interfaces, options string) *pod.AddPod {
	ev := sandbox(name)
	if strings.Contains(interfaces, "/memif") {
		ev.Grants = []pod.Grant{grant("vnf", 1, 4)}
	}
	ev.Annotations = map[string]string{pod.AnnotationCustom: interfaces, pod.AnnotationOptions: options}
	return ev
}

// grant returns kubelet's allocation for a container: a number of devices on a socket.
func grant(container string, socket uint32, devices int) pod.Grant {
	id := "allocation-of-" + container
	g := pod.Grant{Container: container, GID: pod.UnknownGroup, Allocation: pod.Allocation{
		ID: id, Socket: socket, Directory: "/run/weft/memif/" + id, Secret: "secret of " + secret.Text(container),
	}}
	for d := range devices {
		g.Allocation.Devices = append(g.Allocation.Devices, fmt.Sprintf("memif-%d", 100*int(socket)+d))
	}
	return g
}

// secretOf returns the secret of grant's allocations.
func secretOf(allocation string) secret.Text {
	container, known := strings.CutPrefix(allocation, "allocation-of-")
	if !known {
		return ""
	}
	return "secret of " + secret.Text(container)
}

// sandbox returns an ADD of the pod with that name.
func sandbox(name string) *pod.AddPod {
	return &pod.AddPod{Request: pod.Request{
		Key:   pod.Key{Network: "weft", ContainerID: "c0ffee-" + name, IfName: "eth0"},
		ID:    pod.ID{Namespace: "default", Name: name, UID: "uid-" + name},
		Netns: pod.Netns{Path: "/run/netns/" + name, Inode: 4026531000 + uint64(len(name)), Device: 4},
	}}
}
