package podmanager

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// node is a manager on a real loop, with a handler after it that connects pods in memory.
type node struct {
	*Manager
	machine   *machine
	cluster   *apiServer
	devices   *devices
	loop      *eventloop.Loop
	committer *eventlooptest.Committer
	saver     *eventlooptest.Saver
	stopLoop  func()

	mu          sync.Mutex
	now         time.Time
	netns       map[string]uint64 // inode by path
	device      uint64            // of all network namespaces
	alias       map[string]string // of the interface eth0, by path
	differences []string          // that the machine has, one element a verification
	links       []Difference      // that the sandbox's links have
	verified    int
	observed    []Outcome
	announced   []string                  // containers
	announcing  func(ctx context.Context) // called by Announce; nil: nothing
	notReady    error
	paused      string
	exhausted   string
	bare        bool                                            // pods get no interface
	onConnect   func(ctx context.Context, ev *pod.AddPod) error // called by the handler of AddPod
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		committer: &eventlooptest.Committer{}, saver: &eventlooptest.Saver{}, now: start,
		netns: map[string]uint64{"/run/netns/a": 11, "/run/netns/b": 12}, device: 4, alias: map[string]string{},
	}
	n.loop = eventloop.New(eventloop.Config{Committer: n.committer, Saver: n.saver})
	n.machine = &machine{
		inspect:   n.inspect,
		linkAlias: n.linkAlias,
		isGone:    func(pod.Netns) bool { return false },
		verify:    n.verifyMachine,
		end:       func(*pod.Attachment) map[string]int { return nil },
		void:      func(context.Context, pod.Key) error { return nil },
		started:   func() bool { return true },
	}
	n.cluster = &apiServer{}
	n.devices = &devices{}
	n.Manager = New(Config{
		Loop:      n.loop,
		Node:      n.machine,
		Admission: n,
		Cluster:   n.cluster,
		Refiller:  n.cluster,
		Devices:   n.devices,
		Announcer: n,
		Chains:    n.machine,
		Queue:     n.machine,
		Now:       n.clock,
		Observe:   func(o Outcome) { n.set(func() { n.observed = append(n.observed, o) }) },
	})
	n.Register(n.loop)
	eventloop.On(n.loop, "connect", n.connectPod)
	eventloop.On(n.loop, "connect", func(_ context.Context, ev *pod.AddressPod, txn *eventloop.Txn) error {
		txn.Put("tap/"+ev.Key.String(), "addressed")
		return nil
	})
	eventloop.On(n.loop, "connect", func(_ context.Context, ev *pod.DeletePod, txn *eventloop.Txn) error {
		txn.Delete("tap/" + ev.Key.String())
		return nil
	})
	n.stopLoop = eventlooptest.Ready(t, n.loop)
	return n
}

// Ready, Started, Paused and Exhausted make the node the admission of its manager.
func (n *node) Ready() error { n.mu.Lock(); defer n.mu.Unlock(); return n.notReady }

func (n *node) Started() bool { return n.machine.started() }

func (n *node) Paused() (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused, n.paused != ""
}

// Announce makes the node the announcer of its manager.
func (n *node) Announce(ctx context.Context, a *pod.Attachment) {
	n.set(func() { n.announced = append(n.announced, a.Key.ContainerID) })
	if n.announcing != nil {
		n.announcing(ctx)
	}
}

func (n *node) Exhausted() string { n.mu.Lock(); defer n.mu.Unlock(); return n.exhausted }

// machine is a Node with functions that a test replaces, and its plugin chains and delete queue.
type machine struct {
	inspect   func(ctx context.Context, path string) (pod.Netns, error)
	linkAlias func(ctx context.Context, netns pod.Netns, name string) (string, bool, error)
	isGone    func(netns pod.Netns) bool
	verify    func(ctx context.Context, a *pod.Attachment) ([]Difference, error)
	end       func(a *pod.Attachment) map[string]int
	void      func(ctx context.Context, key pod.Key) error
	started   func() bool
}

func (m *machine) Inspect(ctx context.Context, path string) (pod.Netns, error) {
	return m.inspect(ctx, path)
}

func (m *machine) LinkAlias(ctx context.Context, netns pod.Netns, name string) (string, bool, error) {
	return m.linkAlias(ctx, netns, name)
}

func (m *machine) IsGone(netns pod.Netns) bool { return m.isGone(netns) }

func (m *machine) Verify(ctx context.Context, a *pod.Attachment) ([]Difference, error) {
	return m.verify(ctx, a)
}

func (m *machine) End(a *pod.Attachment) map[string]int { return m.end(a) }

func (m *machine) Remove(ctx context.Context, key deletequeue.Key) error {
	return m.void(ctx, pod.Key(key))
}

// apiServer is a Cluster and a Refiller with functions that a test sets. Without them it is a node without a cluster.
type apiServer struct {
	standalone
	annotations func(ctx context.Context, id pod.ID) (map[string]string, string, error)
	selected    func(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error)
	group       func(id pod.ID, container string) int
	forget      func(id pod.ID)
	refillable  func(refused error) bool
	refill      func(ctx context.Context, request *pod.Request, refused error) error
}

func (s *apiServer) Annotations(ctx context.Context, id pod.ID) (map[string]string, string, error) {
	if s.annotations == nil {
		return s.standalone.Annotations(ctx, id)
	}
	return s.annotations(ctx, id)
}

func (s *apiServer) Selected(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error) {
	if s.selected == nil {
		return s.standalone.Selected(ctx, request)
	}
	return s.selected(ctx, request)
}

func (s *apiServer) Group(id pod.ID, container string) int {
	if s.group == nil {
		return s.standalone.Group(id, container)
	}
	return s.group(id, container)
}

func (s *apiServer) Forget(id pod.ID) {
	if s.forget != nil {
		s.forget(id)
	}
}

func (s *apiServer) Refillable(refused error) bool {
	return s.refillable != nil && s.refillable(refused)
}

func (s *apiServer) Refill(ctx context.Context, request *pod.Request, refused error) error {
	return s.refill(ctx, request, refused)
}

// devices are Devices with functions that a test sets.
type devices struct {
	noDevices
	granted, claimed func(ctx context.Context, id pod.ID) ([]pod.Grant, error)
}

func (d *devices) Devices(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	if d.granted == nil {
		return d.noDevices.Devices(ctx, id)
	}
	return d.granted(ctx, id)
}

func (d *devices) Claimed(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	if d.claimed == nil {
		return d.noDevices.Claimed(ctx, id)
	}
	return d.claimed(ctx, id)
}

// connectPod gives each pod one interface.
func (n *node) connectPod(ctx context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if n.onConnect != nil {
		if err := n.onConnect(ctx, ev); err != nil {
			return err
		}
	}
	txn.Put("tap/"+ev.Key.String(), "connected")
	if n.bare {
		return nil
	}
	ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
		Name: ev.Key.IfName, Type: "tap", Object: "tap0", MAC: netaddr.MAC{2, 0xfe, 0, 0, 0, 1}, MTU: 1450,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.5/32"), netip.MustParsePrefix("fd00::5/128")},
		Gateways:  []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
		Routes: []pod.Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("169.254.1.1")},
			{Destination: netip.MustParsePrefix("fe80::1/128")},
		},
	})
	return nil
}

func (n *node) clock() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) inspect(_ context.Context, path string) (pod.Netns, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	inode, ok := n.netns[path]
	if !ok {
		return pod.Netns{}, errors.New("it is not there")
	}
	return pod.Netns{Path: path, Inode: inode, Device: n.device}, nil
}

func (n *node) linkAlias(_ context.Context, netns pod.Netns, name string) (string, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	alias, ok := n.alias[netns.Path]
	return alias, ok && name == "eth0", nil
}

func (n *node) verifyMachine(context.Context, *pod.Attachment) ([]Difference, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.verified++
	if len(n.differences) == 0 || n.differences[0] == "" {
		return n.links, nil
	}
	found := Difference{Text: n.differences[0]}
	if len(n.differences) > 1 {
		n.differences = n.differences[1:]
	}
	return []Difference{found}, nil
}

func caller() *weftv1.Caller { return &weftv1.Caller{Version: "test", Protocol: weftv1.Protocol} }

func attachment(container string) *weftv1.Attachment {
	return &weftv1.Attachment{Network: "weft", ContainerId: container, IfName: "eth0"}
}

func keyOfContainer(container string) pod.Key {
	return pod.Key{Network: "weft", ContainerID: container, IfName: "eth0"}
}

func addOf(container, netns string) *weftv1.AddRequest {
	return &weftv1.AddRequest{
		Caller: caller(), Attachment: attachment(container), Netns: netns, Mode: "primary",
		Pod: &weftv1.Pod{Namespace: "shop", Name: "cart-0", Uid: "u1"},
	}
}

// add connects a sandbox and fails the test on an error.
func (n *node) add(t *testing.T, container, netns string) *weftv1.AddReply {
	t.Helper()
	reply, err := n.Add(t.Context(), addOf(container, netns))
	if err != nil || reply.GetError() != nil {
		t.Fatalf("ADD of %s: %v, %v", container, reply.GetError(), err)
	}
	return reply
}

// refusedAdd returns the error of an ADD that must fail.
func (n *node) refusedAdd(t *testing.T, req *weftv1.AddRequest) *weftv1.Error {
	t.Helper()
	reply, err := n.Add(t.Context(), req)
	if err != nil || reply.GetError() == nil {
		t.Fatalf("ADD succeeded: %v, %v", reply, err)
	}
	return reply.GetError()
}

func (n *node) del(t *testing.T, container string) *weftv1.Error {
	t.Helper()
	reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: caller(), Attachment: attachment(container)})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetError()
}

// want compares the containers in memory, in the state file and on the machine with the given ones.
func (n *node) want(t *testing.T, containers ...string) {
	t.Helper()
	saved := n.saver.Bucket(bucket)
	connected := n.committer.Values()
	if got := n.Attachments(); len(got) != len(containers) || len(saved) != len(containers) ||
		len(connected) != len(containers) {
		t.Fatalf("kept %d, saved %d, connected %d, want %d of each: %v", len(got), len(saved), len(connected),
			len(containers), got)
	}
	for _, c := range containers {
		key := keyOfContainer(c)
		_, known := n.Attachment(key)
		if !known || saved[key.String()] == nil || connected["tap/"+key.String()] == nil {
			t.Errorf("%s: kept %v, saved %v, connected %v", c, known, saved[key.String()],
				connected["tap/"+key.String()])
		}
	}
}

func wantError(t *testing.T, got *weftv1.Error, code uint, text string) {
	t.Helper()
	if uint(got.GetCode()) != code || !contains(got.GetMsg(), text) {
		t.Errorf("code %d %q (%s), want %d with %q", got.GetCode(), got.GetMsg(), got.GetDetails(), code, text)
	}
}

// refuseAtomic rejects the atomic commits of ADDs and accepts all others.
func refuseAtomic(_ context.Context, c eventloop.Change) error {
	if c.Atomic {
		return errors.New("refused")
	}
	return nil
}
