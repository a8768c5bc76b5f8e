package podmanager

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func contains(text, part string) bool {
	return strings.Contains(text, part) && !strings.Contains(text, "\n")
}

func bytesOf(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRepeatedAddHasTheSameReplyAndChangesNothing(t *testing.T) {
	n := newNode(t)
	first := n.add(t, "c1", "/run/netns/a")
	changes := len(n.committer.Changes())
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	second := n.add(t, "c1", "/run/netns/a")
	if bytesOf(t, first) != bytesOf(t, second) {
		t.Errorf("first %v\nthen %v", first, second)
	}
	if got := len(n.committer.Changes()); got != changes {
		t.Errorf("the repeated ADD committed %d changes", got-changes)
	}
	n.want(t, "c1")
}

func TestRepeatedAddAfterRestartHasTheSameReply(t *testing.T) {
	n := newNode(t)
	first := n.add(t, "c1", "/run/netns/a")
	kept := n.Attachments()

	restarted := newNodeWith(t, &kept[0])
	if second := restarted.add(t, "c1", "/run/netns/a"); bytesOf(t, first) != bytesOf(t, second) {
		t.Errorf("first %v\nthen %v", first, second)
	}
}

func newNodeWith(t *testing.T, attachments ...*pod.Attachment) *node {
	t.Helper()
	n := newNode(t)
	n.Restore(attachments)
	return n
}

func TestAddFailsForKnownKeyInAnotherNamespace(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/b")), 4,
		"it is connected already, in the network namespace /run/netns/a")

	n.set(func() { n.netns["/run/netns/a"] = 99 }) // another namespace on the same path
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 4, "it is connected already")
	n.set(func() {
		n.netns["/run/netns/a"] = 11
		n.device = 5
	}) // inodes are unique on a device only
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 4, "it is connected already")
	n.want(t, "c1")
}

func TestSecondSandboxOfPodCoexistsWithTheFirst(t *testing.T) {
	n := newNode(t)
	n.add(t, "old", "/run/netns/a")
	n.add(t, "new", "/run/netns/b")
	n.want(t, "old", "new")

	if err := n.del(t, "old"); err != nil { // late
		t.Error(err)
	}
	n.want(t, "new")
}

func TestFailedAddLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.onConnect = func(context.Context, *pod.AddPod) error {
		return pod.Errorf(pod.CodePoolExhausted, "pod shop/cart-0: pool default is exhausted")
	}
	err := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	wantError(t, err, 100, "pod shop/cart-0: pool default is exhausted")
	if !strings.HasPrefix(err.GetDetails(), "event ") {
		t.Errorf("the details %q do not name the event", err.GetDetails())
	}
	n.want(t)
	n.onConnect = nil
	n.add(t, "c1", "/run/netns/a")
}

func TestAddErrorCodes(t *testing.T) {
	broken := errors.New("create tap: permission denied")
	tests := map[string]struct {
		spoil func(n *node)
		code  uint
		text  string
	}{
		"the dataplane refuses": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return broken })
		}, 105, "create tap: permission denied"},
		"the state cannot be saved": {func(n *node) {
			n.saver.Before(func(context.Context, []eventloop.Saved) error { return errors.New("disk full") })
		}, 5, "disk full"},
		"a handler panics": {func(n *node) {
			n.onConnect = func(context.Context, *pod.AddPod) error { panic("index out of range") }
		}, 999, "panic: index out of range"},
		"the commit takes too long": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return context.DeadlineExceeded })
		}, 106, "deadline exceeded"},
		"it is paused": {
			func(n *node) { n.paused = "upgrade of the kernel" }, 11, "new pods are paused: upgrade of the kernel",
		},
		"the namespace is gone": {func(n *node) { delete(n.netns, "/run/netns/a") }, 8, "it is not there"},
		"a foreign link": {
			func(n *node) { n.alias["/run/netns/a"] = "" }, 4,
			"interface eth0 exists already in the sandbox and is not Weft's",
		},
		"a link of another sandbox": {func(n *node) {
			n.alias["/run/netns/a"] = "weft:weft/c2/eth0"
		}, 4, "exists already"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.spoil(n)
			wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), tt.code, tt.text)
			n.committer.Before(nil)
			n.saver.Before(nil)
			if left := n.Attachments(); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestAddRejectsInvalidRequestBeforeTheLoop(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.AddRequest)
		code  uint
		text  string
	}{
		"an unsupported protocol": {func(r *weftv1.AddRequest) { r.Caller.Protocol = 9 }, 107, "speaks protocol 9"},
		"no protocol":             {func(r *weftv1.AddRequest) { r.Caller = nil }, 107, "of unknown version"},
		"an unknown mode":         {func(r *weftv1.AddRequest) { r.Mode = "dance" }, 7, `unknown mode "dance"`},
		"a key with a slash": {
			func(r *weftv1.AddRequest) { r.Attachment.ContainerId = "a/b" }, 4, "illegal name",
		},
		"a key without a network": {func(r *weftv1.AddRequest) { r.Attachment.Network = "" }, 4, "are required"},
		"a relative namespace":    {func(r *weftv1.AddRequest) { r.Netns = "netns/a" }, 4, "not an absolute path"},
		"an invalid address": {
			func(r *weftv1.AddRequest) { r.Ips = []string{"10.1.1"} }, 7, `requested address "10.1.1"`,
		},
		"two addresses of one family": {
			func(r *weftv1.AddRequest) { r.Ips = []string{"10.1.1.1", "10.1.1.2/24"} }, 7, "one of this family",
		},
		"no MAC":          {func(r *weftv1.AddRequest) { r.Mac = "no mac" }, 7, `requested MAC "no mac"`},
		"a multicast MAC": {func(r *weftv1.AddRequest) { r.Mac = "01:00:00:00:00:01" }, 7, "not a unicast"},
		"the zero MAC":    {func(r *weftv1.AddRequest) { r.Mac = "00:00:00:00:00:00" }, 7, "not a unicast"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := addOf("c1", "/run/netns/a")
			tt.spoil(req)
			wantError(t, n.refusedAdd(t, req), tt.code, tt.text)
			n.want(t)
		})
	}
}

func TestAddBeforeTheAgentIsReadyReportsStarting(t *testing.T) {
	n := newNode(t)
	n.set(func() { n.notReady = errors.New("dataplane: not connected yet") })
	err := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	wantError(t, err, 11, "agent is starting: dataplane: not connected yet")
	if err.GetDetails() != starting {
		t.Errorf("details are %q", err.GetDetails())
	}
}

func TestAddUsesAnnotationsOfRuntimeFirst(t *testing.T) {
	n := newNode(t)
	n.cluster.annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
		return map[string]string{"contivpp.io/custom-if": "tap2/tap"}, "cache", nil
	}
	var got, from string
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		got = ev.Annotations["contivpp.io/custom-if"]
		from = ev.AnnotationsFrom
		return nil
	}
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations = true
	req.Annotations = map[string]string{"contivpp.io/custom-if": "tap1/tap", "other": "x"}
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil || got != "tap1/tap" ||
		from != "runtime" {
		t.Errorf("%q from %s (%v, %v)", got, from, reply.GetError(), err)
	}
	if a, _ := n.Attachment(keyOfContainer("c1")); len(a.Annotations) != 1 {
		t.Errorf("kept %v", a.Annotations)
	}
	n.add(t, "c2", "/run/netns/b")
	if got != "tap2/tap" || from != "cache" {
		t.Errorf("%q from %s", got, from)
	}
	req = addOf("c3", "/run/netns/b")
	req.Pod = nil
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil || got != "" || from != "none" {
		t.Errorf("%q from %s", got, from)
	}
}

func TestAddDeletesOlderSandboxesWhoseNamespacesAreGone(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	gone := false
	n.machine.isGone = func(netns pod.Netns) bool { return gone && netns.Path == "/run/netns/a" }
	n.add(t, "c2", "/run/netns/b")
	if all := n.Attachments(); len(all) != 2 {
		t.Errorf("the older sandbox is there, and %d attachments are left", len(all))
	}
	gone = true
	n.add(t, "c3", "/run/netns/b")
	for _, at := range n.Attachments() {
		if at.Key == keyOfContainer("c1") {
			t.Error("the attachment of the older sandbox is left")
		}
	}
}

func TestAddVoidsQueuedDelete(t *testing.T) {
	n := newNode(t)
	var voided []pod.Key
	n.machine.void = func(_ context.Context, key pod.Key) error { voided = append(voided, key); return nil }
	n.add(t, "c1", "/run/netns/a")
	if len(voided) != 1 || voided[0] != keyOfContainer("c1") {
		t.Errorf("voided %v", voided)
	}
	n.machine.void = func(context.Context, pod.Key) error { return errors.New("the queue cannot be read") }
	// the queued DEL would delete the pod
	wantError(t, n.refusedAdd(t, addOf("c2", "/run/netns/b")), 999, "the queue cannot be read")
	n.want(t, "c1")
}

// An ADD that failed for want of addresses is repeated with the inputs that it had, once the node has more addresses.
func TestAddIsRetriedAfterARefill(t *testing.T) {
	n := newNode(t)
	exhausted := pod.Errorf(pod.CodePoolExhausted, "pool default is exhausted")
	voided := 0
	attempts := 0
	refilled := 0
	n.machine.void = func(context.Context, pod.Key) error { voided++; return nil }
	n.onConnect = func(context.Context, *pod.AddPod) error {
		if attempts++; attempts < 3 {
			return exhausted
		}
		return nil
	}
	n.cluster.refillable = func(refused error) bool { return errors.Is(refused, exhausted) }
	n.cluster.refill = func(_ context.Context, _ *pod.Request, refused error) error {
		if refilled++; !errors.Is(refused, exhausted) {
			t.Errorf("a refill for %v", refused)
		}
		return nil
	}
	n.add(t, "c1", "/run/netns/a")
	if attempts != 3 || refilled != 2 || voided != 1 {
		t.Errorf("%d attempts with %d refills, inputs were read %d times; want 3, 2 and 1", attempts, refilled, voided)
	}
	n.want(t, "c1")

	attempts = -100
	refilled = 0 // it fails for longer than the runtime waits
	wantError(t, n.refusedAdd(t, addOf("c2", "/run/netns/b")), 100, "pool default is exhausted")
	if refilled != refills {
		t.Errorf("%d refills, want %d", refilled, refills)
	}
	n.cluster.refill = func(context.Context, *pod.Request, error) error { return errors.New("no block is free") }
	wantError(t, n.refusedAdd(t, addOf("c2", "/run/netns/b")), 999, "no block is free")
}

// asked adds a sandbox and returns the event that the handlers received.
func (n *node) asked(t *testing.T, req *weftv1.AddRequest) (*pod.AddPod, *weftv1.AddReply) {
	t.Helper()
	var seen *pod.AddPod
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error { seen = ev; return nil }
	reply, err := n.Add(t.Context(), req)
	if err != nil || reply.GetError() != nil {
		t.Fatalf("ADD: %v, %v", reply.GetError(), err)
	}
	return seen, reply
}

func TestAddPassesItsMode(t *testing.T) {
	for _, mode := range []string{"", "primary", "chained", "delegate", "ipam"} {
		n := newNode(t)
		req := addOf("c1", "/run/netns/a")
		req.Mode = mode
		if ev, _ := n.asked(t, req); ev.Mode != mode {
			t.Errorf("mode %q became %q", mode, ev.Mode)
		}
	}
}

func TestForeignIPAMResultReachesHandlersAndReply(t *testing.T) {
	n := newNode(t)
	req := addOf("c1", "/run/netns/a")
	req.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16", Gateway: "10.7.0.1"}, {Address: "fd07::9/64"}}
	req.DelegatedRoutes = []*weftv1.Route{
		{Destination: "0.0.0.0/0"}, {Destination: "10.99.0.3/16", Gateway: "10.7.0.2"},
	}
	req.DelegatedDns = &weftv1.DNS{Nameservers: []string{"10.7.0.53"}, Domain: "shop.example"}
	ev, reply := n.asked(t, req)
	want := pod.Requested{
		Delegated:         []netip.Prefix{netip.MustParsePrefix("10.7.0.9/16"), netip.MustParsePrefix("fd07::9/64")},
		DelegatedGateways: []netip.Addr{netip.MustParseAddr("10.7.0.1"), {}},
		Delegation: pod.Delegation{
			Routes: []pod.Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0")},
				{Destination: netip.MustParsePrefix("10.99.0.0/16"), Gateway: netip.MustParseAddr("10.7.0.2")},
			},
			DNS: pod.DNS{Nameservers: []string{"10.7.0.53"}, Domain: "shop.example"},
		},
	}
	if !reflect.DeepEqual(ev.Requested, want) {
		t.Errorf("the handlers received %+v\nwant %+v", ev.Requested, want)
	}
	routes := reply.GetRoutes()
	if len(routes) != 3 || routes[2].GetDestination() != "10.99.0.0/16" || routes[2].GetGateway() != "169.254.1.1" {
		t.Errorf("routes of the reply are %v, want those of the interface and 10.99.0.0/16 by its gateway", routes)
	}
	if reply.GetDns().GetNameservers()[0] != "10.7.0.53" {
		t.Errorf("dns of the reply is %v", reply.GetDns())
	}
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	if again := n.add(t, "c1", "/run/netns/a"); bytesOf(t, again) != bytesOf(t, reply) {
		t.Errorf("a repeated ADD has %v\nthe first had %v", again, reply)
	}
}

func TestInvalidForeignIPAMResultIsRejected(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.AddRequest)
		text  string
	}{
		"no prefix": {
			func(r *weftv1.AddRequest) { r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1"}} },
			"address of the IPAM plugin",
		},
		"two of a family": {func(r *weftv1.AddRequest) {
			r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1/24"}, {Address: "10.1.1.2/24"}}
		}, "the second one of its family"},
		"a gateway": {
			func(r *weftv1.AddRequest) { r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1/24", Gateway: "x"}} },
			"gateway of the IPAM plugin",
		},
		"a route": {
			func(r *weftv1.AddRequest) { r.DelegatedRoutes = []*weftv1.Route{{Destination: "x"}} },
			"route of the IPAM plugin",
		},
		"a gateway of a route": {
			func(r *weftv1.AddRequest) { r.DelegatedRoutes = []*weftv1.Route{{Destination: "::/0", Gateway: "x"}} },
			"route ::/0 of the IPAM plugin",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := addOf("c1", "/run/netns/a")
			tt.spoil(req)
			wantError(t, n.refusedAdd(t, req), 7, tt.text)
		})
	}
}

func TestAddRejectsExistingForeignLinks(t *testing.T) {
	const custom = "contivpp.io/custom-if"
	tests := map[string]struct {
		mode, custom, alias string
		code                uint
		text                string
	}{
		"the main interface of another plugin, in a chain": {"chained", "", "", 0, ""},
		"the main interface of another plugin, mode ipam":  {"ipam", "eth9/tap", "", 0, ""},
		"the main interface":                               {"primary", "", "", 4, "interface eth0 exists already"},
		"another attachment's main interface": {
			"primary", "", "weft:other/c1/eth0", 4, "interface eth0 exists already",
		},
		"one of an attachment whose name begins with ours": {
			"primary", "", "weft:weft/c1/eth01", 4, "interface eth0 exists already",
		},
		"an extra interface": {
			"chained", "tap1/tap", "", 103, "interface tap1 exists already",
		},
		"our own extra interface":            {"chained", "tap1/tap", "weft:weft/c1/eth0/tap1", 0, ""},
		"an interface of another attachment": {"chained", "tap1/tap", "weft:other/c1/net1", 0, ""},
		"a memif":                            {"chained", "tap1/memif", "", 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.machine.linkAlias = func(context.Context, pod.Netns, string) (string, bool, error) {
				return tt.alias, true, nil
			}
			req := addOf("c1", "/run/netns/a")
			req.Mode = tt.mode
			req.HasAnnotations = true
			req.Annotations = map[string]string{custom: tt.custom}
			if tt.code == 0 {
				n.asked(t, req)
				return
			}
			wantError(t, n.refusedAdd(t, req), tt.code, tt.text)
		})
	}
}

func TestFindReturnsTheReplyOfAddWithoutChanges(t *testing.T) {
	n := newNode(t)
	find := func(container, netns string) *weftv1.FindReply {
		reply, err := n.Find(t.Context(), &weftv1.FindRequest{
			Caller:     caller(),
			Attachment: attachment(container),
			Netns:      netns,
		})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := find("c1", "/run/netns/a"); got.GetError() != nil || got.GetFound() != nil {
		t.Errorf("without an attachment: %v", got)
	}
	n.want(t)
	added := n.add(t, "c1", "/run/netns/a")
	if got := find("c1", "/run/netns/a"); got.GetError() != nil || bytesOf(t, got.GetFound()) != bytesOf(t, added) {
		t.Errorf("found %v\nadded %v", got, added)
	}
	wantError(t, find("c1", "/run/netns/b").GetError(), 4, "it is connected already")
	wantError(t, find("c/1", "/run/netns/a").GetError(), 4, "illegal name")
	n.set(func() { n.paused = "maintenance" })
	wantError(t, find("c2", "/run/netns/a").GetError(), 11, "paused: maintenance")
}

func TestGrantsAreQueriedForMemifsOnly(t *testing.T) {
	for _, tc := range []struct {
		custom string
		want   int
	}{{"", 0}, {"t1/tap", 0}, {"t1/tap,m1/memif", 1}, {"not readable", 0}} {
		n := newNode(t)
		asked := 0
		seen := 0
		n.devices.granted = func(_ context.Context, id pod.ID) ([]pod.Grant, error) {
			asked++
			return []pod.Grant{{Container: id.Name}}, nil
		}
		n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
			seen = len(ev.Grants)
			return nil
		}
		req := addOf("c1", "/run/netns/a")
		req.HasAnnotations = true
		req.Annotations = map[string]string{pod.AnnotationCustom: tc.custom}
		if reply, err := n.Add(context.Background(), req); err != nil || reply.GetError() != nil {
			t.Fatalf("%q: %v, %v", tc.custom, reply, err)
		}
		if asked != tc.want || seen != tc.want {
			t.Errorf("%q: %d calls of Grants, %d grants in the event, want %d", tc.custom, asked, seen, tc.want)
		}
	}
}

// The memifs of a pod's claims are interfaces that it requests, without a query of kubelet.
func TestPreparedClaimsAddInterfaces(t *testing.T) {
	n := newNode(t)
	n.devices.granted = func(context.Context, pod.ID) ([]pod.Grant, error) { return nil, errors.New("no answer") }
	n.devices.claimed = func(_ context.Context, id pod.ID) ([]pod.Grant, error) {
		return []pod.Grant{{Allocation: pod.Allocation{ID: "x", Claim: &pod.ClaimedDevice{
			ClaimID:    pod.ClaimID{Namespace: id.Namespace, Name: "c"},
			Parameters: pod.ClaimParameters{Interface: "fast", Network: "blue"},
		}}}}, nil
	}
	var extra []pod.InterfaceRequest
	n.onConnect = func(_ context.Context, ev *pod.AddPod) (err error) {
		extra, err = ev.Extra()
		return err
	}
	req := addOf("c1", "/run/netns/a")
	if reply, err := n.Add(context.Background(), req); err != nil || reply.GetError() != nil {
		t.Fatalf("%v, %v", reply, err)
	}
	want := pod.InterfaceRequest{
		Name:       "fast",
		Type:       pod.TypeMemif,
		Network:    "blue",
		Claim:      req.GetPod().GetNamespace() + "/c",
		Allocation: "x",
	}
	if len(extra) != 1 || !reflect.DeepEqual(extra[0], want) {
		t.Errorf("requests %+v, want %+v", extra, want)
	}
}

// The device of a claim for delegates is in the request, and only an ADD that names it makes an interface of it.
func TestClaimsForDelegatesAddNoInterfaces(t *testing.T) {
	n := newNode(t)
	n.devices.claimed = func(_ context.Context, id pod.ID) ([]pod.Grant, error) {
		return []pod.Grant{{Allocation: pod.Allocation{ID: "x", Claim: &pod.ClaimedDevice{
			ClaimID:    pod.ClaimID{Namespace: id.Namespace, Name: "c"},
			Parameters: pod.ClaimParameters{Interface: "fast", Delegate: true},
		}}}}, nil
	}
	var grants []pod.Grant
	var extra []pod.InterfaceRequest
	n.onConnect = func(_ context.Context, ev *pod.AddPod) (err error) {
		grants = ev.Grants
		extra, err = ev.Extra()
		return err
	}
	if reply, err := n.Add(context.Background(), addOf("c1", "/run/netns/a")); err != nil || reply.GetError() != nil {
		t.Fatalf("%v, %v", reply, err)
	}
	if len(extra) > 0 || len(grants) != 1 || grants[0].Allocation.ID != "x" {
		t.Errorf("requests %+v, grants %+v", extra, grants)
	}
}

func TestAddFailsWithTryAgainWhileKubeletIsAway(t *testing.T) {
	n := newNode(t)
	n.devices.granted = func(context.Context, pod.ID) ([]pod.Grant, error) { return nil, errors.New("no answer") }
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations = true
	req.Annotations = map[string]string{pod.AnnotationCustom: "m1/memif"}
	reply, err := n.Add(context.Background(), req)
	if err != nil || reply.GetError().GetCode() != uint32(pod.CodeTryAgain) {
		t.Errorf("reply %v, error %v", reply, err)
	}
	if refusals, _ := n.refusals(t); len(refusals) != 1 {
		t.Errorf("the ADD was handled; records of refusals: %q", refusals)
	}
}

func TestOnlyAFailedADDForgetsWhatWasReadOfThePod(t *testing.T) {
	n := newNode(t)
	var forgotten []pod.ID
	n.cluster.forget = func(id pod.ID) { forgotten = append(forgotten, id) }
	n.add(t, "c1", "/run/netns/a")
	if len(forgotten) != 0 {
		t.Errorf("%v are forgotten after a successful ADD", forgotten)
	}
	req := addOf("c1", "/run/netns/b") // the key is known in another namespace
	n.refusedAdd(t, req)
	if len(forgotten) != 1 || forgotten[0] != idOf(req.GetPod()) {
		t.Errorf("%v are forgotten, want %v", forgotten, idOf(req.GetPod()))
	}
}

// The dataplane's objects have clean paths only.
func TestPathOfTheNetworkNamespaceIsCleaned(t *testing.T) {
	for _, path := range []string{"/run/netns/a", "//run/netns//a", "/run/./netns/a", "/run/netns/a/"} {
		n := newNode(t)
		n.add(t, "c1", path)
		if a, _ := n.Attachment(keyOfContainer("c1")); a.Netns.Path != "/run/netns/a" {
			t.Errorf("%s: the attachment has %s", path, a.Netns.Path)
		}
	}
}

func TestInvalidPathsOfNetworkNamespacesAreRefused(t *testing.T) {
	n := newNode(t)
	for path, want := range map[string]string{
		"":                         "is not an absolute path",
		"run/netns/a":              "is not an absolute path",
		"../run/netns/a":           "is not an absolute path",
		"/run/netns/../netns/a":    `has the element ".."`,
		"/run/netns/a/..":          `has the element ".."`,
		"/run/netns/a\x00":         "has control characters",
		"/run/netns/a\n":           "has control characters",
		"/run/netns/\x1b[2Ja":      "has control characters",
		strings.Repeat("/a", 2048): "has 4096 bytes, at most 4095 are possible",
	} {
		err := n.refusedAdd(t, addOf("c1", path))
		wantError(t, err, pod.CodeInvalidEnvironment, want)
		if len(err.GetMsg()) > 1000 || strings.ContainsFunc(err.GetMsg(), unicode.IsControl) {
			t.Errorf("%.20q: the error has %d bytes or control characters: %.300q", path, len(err.GetMsg()),
				err.GetMsg())
		}
	}
	n.want(t)
}

// The DNS of a network is apart from that of the IPAM plugin: the plugin that calls the agent prefers it.
func TestReplyHasTheDNSOfANetworkThatAnInterfaceRequests(t *testing.T) {
	n := newNode(t)
	req := addOf("c1", "/run/netns/a")
	req.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16"}}
	req.DelegatedDns = &weftv1.DNS{Nameservers: []string{"10.7.0.53"}}
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
			Name:    "t1",
			Type:    pod.TypeTap,
			Network: "blue",
			DNS:     pod.DNS{Nameservers: []string{"10.5.0.53"}, Domain: "blue"},
		})
		return nil
	}
	for range 2 { // the second reply is that of a repeated ADD
		reply, err := n.Add(t.Context(), req)
		if err != nil || reply.GetError() != nil {
			t.Fatalf("ADD: %v, %v", reply.GetError(), err)
		}
		if got := reply.GetDns().GetNameservers(); len(got) != 1 || got[0] != "10.7.0.53" {
			t.Errorf("DNS of the IPAM plugin: %v", got)
		}
		if got := reply.GetNetworkDns(); len(got.GetNameservers()) != 1 || got.GetNameservers()[0] != "10.5.0.53" ||
			got.GetDomain() != "blue" {
			t.Errorf("DNS of the network: %v", got)
		}
		n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	}
}
