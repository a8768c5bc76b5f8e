package linux

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

var (
	mac1 = netaddr.MAC{0x02, 0, 0, 0, 0, 1}
	mac2 = netaddr.MAC{0x02, 0, 0, 0, 0, 2}
)

const alias = "weft:default/a/eth0"

// lab is a pod's namespace with a tap, as the dataplane makes it, and a scheduler.
type lab struct {
	*testing.T
	path    string
	s       *kvscheduler.Scheduler
	changes ChainChanges
	full    Overfull

	unannounced atomic.Int64 // announcements that were not sent
}

func newLab(t *testing.T) *lab {
	t.Helper()
	netnstest.RequireTap(t)
	// the kernel deletes that of an earlier test after its namespace
	for deadline := time.Now().Add(time.Minute); isThere(hostEnd); {
		if time.Now().After(deadline) {
			t.Fatalf("link %s of an earlier test is still there", hostEnd)
		}
	}
	l := &lab{T: t, path: netnstest.New(t)}
	l.inside(func() { addTap(t, "eth0") })
	l.s = kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
	if err := Register(l.s, Options{
		ChainChanges: &l.changes,
		Overfull:     &l.full,
		Unannounced:  func(wire.Announcement, error) { l.unannounced.Add(1) },
	}); err != nil {
		t.Fatal(err)
	}
	// dataplane/vpp makes taps and members of bridge domains; these tests need only the desired objects.
	if err := kvscheduler.Register(l.s, kvscheduler.Descriptor[wire.Interface, struct{}]{
		Name: wire.KindInterface, Equal: func(want, have wire.Interface) bool { return want == have },
	}); err != nil {
		t.Fatal(err)
	}
	if err := kvscheduler.Register(l.s, kvscheduler.Descriptor[wire.BridgeMember, struct{}]{
		Name: wire.KindBridgeMember, Equal: func(want, have wire.BridgeMember) bool { return want == have },
		Recreate: func(wire.BridgeMember, wire.BridgeMember) bool { return true },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	l.s.Ready("test")
	return l
}

func (l *lab) inside(f func()) {
	l.Helper()
	netnstest.Do(l, l.path, f)
}

// addTap makes a persistent tap in the calling thread's namespace.
func addTap(t *testing.T, name string) {
	t.Helper()
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Fatalf("add tap: %v", err)
	}
}

func addDummy(t *testing.T, name string) netlink.Link {
	t.Helper()
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}})
	if err != nil {
		t.Skip("needs dummy links: ", err)
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// object is a key and a value.
type object struct {
	key   string
	value any
}

func (l *lab) commit(objects ...object) error {
	l.Helper()
	t := kvscheduler.Txn{Source: "test", Mode: kvscheduler.Atomic, NoPending: true}
	for _, o := range objects {
		object, err := l.s.Object(o.key, o.value)
		if err != nil {
			l.Fatal(err)
		}
		t.Set = append(t.Set, object)
	}
	_, err := l.s.Commit(l.Context(), t)
	return err
}

func (l *lab) mustCommit(objects ...object) {
	l.Helper()
	if err := l.commit(objects...); err != nil {
		l.Fatal(err)
	}
}

// quiet fails the test if an object differs or a resync would change anything.
func (l *lab) quiet() {
	l.Helper()
	differences, err := l.s.Verify(l.Context())
	for _, d := range differences {
		l.Errorf("differs: %+v", d)
	}
	record, rerr := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{DryRun: true, Force: true})
	if err := errors.Join(err, rerr); err != nil {
		l.Fatal(err)
	}
	for _, op := range record.Ops {
		l.Errorf("a resync would %s %s because of %s: %+v -> %+v", op.Verb, op.Ref, op.Why, op.Old, op.New)
	}
}

// different lists the objects that differ from their desired values.
func (l *lab) different() []string {
	l.Helper()
	differences, err := l.s.Verify(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	var refs []string
	for _, d := range differences {
		refs = append(refs, d.Ref.String())
	}
	return refs
}

// found reports whether a check finds that an object differs. A check is a dry run, which takes what it reads as the
// applied value.
func (l *lab) found(key string) bool {
	l.Helper()
	record, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{DryRun: true})
	if err != nil {
		l.Fatal(err)
	}
	return slices.ContainsFunc(record.Ops, func(op kvscheduler.OpRecord) bool { return op.Ref == key })
}

// staysDifferent fails unless each of several checks finds an object, whatever the check before has read.
func (l *lab) staysDifferent(key string) {
	l.Helper()
	for i := range 3 {
		if !l.found(key) {
			l.Errorf("check %d finds no difference of %s", i, key)
		}
	}
}

func (l *lab) namespace() object {
	l.Helper()
	inode, device, err := InspectNamespace(l.path)
	if err != nil {
		l.Fatal(err)
	}
	return object{wire.NamespaceKey(l.path), wire.Namespace{Path: l.path, Inode: inode, Device: device}}
}

func (l *lab) peer() wire.TapPeer {
	return wire.TapPeer{
		Interface: "tap-a",
		Namespace: l.path,
		Name:      "eth0",
		MAC:       mac1,
		MTU:       1400,
		Alias:     alias,
		Up:        true,
	}
}

func (l *lab) peerObject(v wire.TapPeer) object { return object{wire.TapPeerKey("tap-a"), v} }

// ground returns the dependencies of objects on the link.
func (l *lab) ground() []object {
	l.Helper()
	return []object{
		{wire.InterfaceKey("tap-a"), wire.Interface{Type: wire.TypeTap}}, l.namespace(), l.peerObject(l.peer()),
	}
}

func TestMain(m *testing.M) { netnstest.Main(m) }
