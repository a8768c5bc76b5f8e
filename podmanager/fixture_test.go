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
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// node is a manager on a real loop, with a handler after it that connects pods in memory.
type node struct {
	*Manager
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
	n.Manager = New(Config{
		Loop: n.loop, Inspect: n.inspect, LinkExists: n.linkExists, Verify: n.verifyMachine, Now: n.clock,
		Later:     func(*pod.Attachment) map[string]int { return nil },
		IsGone:    func(pod.Netns) bool { return false },
		Void:      func(context.Context, pod.Key) error { return nil },
		Ready:     func() error { n.mu.Lock(); defer n.mu.Unlock(); return n.notReady },
		Exhausted: func() string { n.mu.Lock(); defer n.mu.Unlock(); return n.exhausted },
		Paused:    func() (string, bool) { n.mu.Lock(); defer n.mu.Unlock(); return n.paused, n.paused != "" },
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
		Name: ev.Key.IfName, Type: "tap", Object: "tap0", MAC: "02:fe:00:00:00:01", MTU: 1450,
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

func (n *node) linkExists(_ context.Context, netns pod.Netns, name string) (string, bool, error) {
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
	saved, connected := n.saver.Bucket(bucket), n.committer.Values()
	if got := n.Attachments(); len(got) != len(containers) || len(saved) != len(containers) || len(connected) != len(containers) {
		t.Fatalf("kept %d, saved %d, connected %d, want %d of each: %v", len(got), len(saved), len(connected), len(containers), got)
	}
	for _, c := range containers {
		key := keyOfContainer(c)
		_, known := n.Attachment(key)
		if !known || saved[key.String()] == nil || connected["tap/"+key.String()] == nil {
			t.Errorf("%s: kept %v, saved %v, connected %v", c, known, saved[key.String()], connected["tap/"+key.String()])
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
