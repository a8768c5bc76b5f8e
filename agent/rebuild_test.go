package agent

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// losses are ways to lose attachments of a state file.
var losses = map[string]func(path string) error{
	"deleted by hand":         os.Remove,
	"empty":                   func(path string) error { return os.Truncate(path, 0) },
	"with unreadable entries": garble(statefile.BucketAttachments),
	"not a database": func(path string) error {
		return os.WriteFile(path, []byte("no database at all"), 0o600)
	},
}

// garble makes all entries of buckets unreadable, in an intact file.
func garble(buckets ...string) func(path string) error {
	return func(path string) error {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) (err error) {
			for _, bucket := range buckets {
				b := tx.Bucket([]byte(bucket))
				var keys [][]byte
				err = errors.Join(err, b.ForEach(func(k, _ []byte) error { keys = append(keys, k); return nil }))
				for _, k := range keys {
					err = errors.Join(err, b.Put(k, []byte("{")))
				}
			}
			return err
		})
		return errors.Join(err, db.Close())
	}
}

func TestLostStateFileCostsNoPodItsNetwork(t *testing.T) {
	netnstest.Require(t)
	dir := programs.Build(t)
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, dir)
			before := l.snapshot()
			a := l.pod("a")
			b := l.pod("b")
			mac := map[string]any{"runtimeConfig": map[string]any{"mac": "02:11:22:33:44:55"}}
			resultA := l.cni("ADD", a, nil)
			resultB := l.cni("ADD", b, mac)
			connected := l.snapshot()

			l.restartAfter(lose)
			if operations := l.resyncs(); len(operations) > 0 {
				t.Errorf("operations of the resync: %v", operations)
			}
			if diff := l.snapshot().Since(connected); len(diff) > 0 {
				t.Errorf("differences to before the loss: %v", diff)
			}
			for _, address := range l.addresses(resultB) {
				l.mustReach(a, address)
			}
			l.check(a, resultA)
			l.check(b, resultB)
			if again := l.cni("ADD", a, nil); !bytes.Equal(again, resultA) {
				t.Errorf("repeated ADD: %s\nfirst: %s", again, resultA)
			}
			if again := l.cni("ADD", b, mac); !bytes.Equal(again, resultB) {
				t.Errorf("repeated ADD: %s\nfirst: %s", again, resultB)
			}
			l.restartAfter(func(string) error { return nil }) // the rebuilt state is durable
			if again := l.cni("ADD", a, nil); !bytes.Equal(again, resultA) {
				t.Errorf("ADD after another restart: %s\nfirst: %s", again, resultA)
			}
			l.cni("DEL", a, nil)
			l.cni("DEL", b, nil)
			if diff := l.snapshot().Since(before); len(diff) > 0 {
				t.Errorf("left behind: %v", diff)
			}
		})
	}
}

// restartAfter ends the agent, calls f with its state file, and starts another agent.
func (l *lab) restartAfter(do func(path string) error) {
	l.Helper()
	if err := l.KillAgent(); err != nil {
		l.Fatal(err)
	}
	if err := do(l.stateFile()); err != nil {
		l.Fatal(err)
	}
	l.start()
}

func TestLinkWithoutAnOwnerIsKeptUntilItIsKnown(t *testing.T) {
	l := newLab(t, programs.Build(t))
	before := l.snapshot()
	a := l.pod("a")
	b := l.pod("b")
	resultA := l.cni("ADD", a, nil)
	resultB := l.cni("ADD", b, nil)
	alias := l.setAlias(b, "")
	l.restartAfter(os.Remove)
	l.restartAfter(func(string) error { return nil }) // the rebuild is still incomplete
	if n := len(l.logged("left alone")); n != 2 {
		t.Errorf("the link without an owner was logged %d times, want once per start", n)
	}
	c := l.pod("c")
	l.cni("ADD", c, nil) // gets other addresses than the unknown pod
	for _, address := range l.addresses(resultB) {
		l.mustReach(a, address)
		l.mustReach(c, address)
	}
	l.check(a, resultA)

	l.setAlias(b, alias)
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the resync: %v", operations)
	}
	l.check(b, resultB)
	for _, p := range []*node.Pod{a, b, c} {
		l.cni("DEL", p, nil)
	}
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
}

// setAlias changes the alias of the pod's link and returns the old one.
func (l *lab) setAlias(p *node.Pod, alias string) (was string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			was = link.Attrs().Alias
			err = netlink.LinkSetAlias(link, alias)
		}
		if err != nil {
			l.Fatal(err)
		}
	})
	return was
}

func TestPodThatChangedTheAliasOfItsLinkKeepsItsTap(t *testing.T) {
	dataplane.RequireTap(t)
	l := newLab(t, programs.Build(t))
	p := l.pod("a")
	result := l.cni("ADD", p, nil)
	index := l.linkIndex(p)
	netnstest.Do(t, p.Netns, func() {
		link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: index}}
		err := errors.Join(
			netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x77}), netlink.LinkSetMTU(link, 1400),
			netlink.AddrAdd(link, &netlink.Addr{
				IPNet: &net.IPNet{IP: net.IPv4(10, 1, 0, 99), Mask: net.CIDRMask(32, 32)},
			}))
		if err != nil {
			t.Fatal(err)
		}
	})
	l.restartAfter(os.Remove)
	for _, operation := range l.resyncs() {
		if strings.Contains(operation, " vpp.") {
			t.Errorf("operation of the resync: %s, want only changes of the link", operation)
		}
	}
	if now := l.linkIndex(p); now != index {
		t.Errorf("the link was recreated: its index was %d and is %d", index, now)
	}
	l.check(p, result)
}

func (l *lab) linkIndex(p *node.Pod) (index int) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			l.Fatal(err)
		}
		index = link.Index
	})
	return index
}

func TestPodThatVanishedIsPruned(t *testing.T) {
	l := newLab(t, programs.Build(t))
	before := l.snapshot()
	p := l.pod("a")
	l.cni("ADD", p, nil)
	l.restartAfter(func(path string) error {
		return errors.Join(os.Remove(path), p.Remove())
	})
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
	l.cni("DEL", p, nil)
}
