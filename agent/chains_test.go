package agent

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// chainsOf are the chains of an agent with that state file.
func chainsOf(t *testing.T, path string) (*Agent, *statefile.File) {
	t.Helper()
	s, err := statefile.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{state: s, scheduler: kvscheduler.New(kvscheduler.Config{}), log: slog.New(slog.DiscardHandler)}
	a.assembleChains()
	a.chains.objects = func(*pod.Attachment) []string { return nil }
	return a, s
}

// restored is what the next agent knows of chains.
func restored(t *testing.T, s *statefile.File, path string, attachments ...*pod.Attachment) (*Agent, *statefile.File) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	a, s := chainsOf(t, path)
	ends, err := statefile.Load[chainEnd](s, statefile.BucketChains, a.log)
	if err != nil {
		t.Fatal(err)
	}
	a.chains.restore(ends, attachments)
	return a, s
}

// linked is an attachment with a link whose MTU is another than the attachment's.
func linked(t *testing.T, mtu int) *pod.Attachment {
	t.Helper()
	path := netnstest.New(t)
	netnstest.Do(t, path, func() {
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: mtu}, Mode: netlink.TUNTAP_MODE_TAP}
		if err := netlink.LinkAdd(tap); err != nil {
			t.Fatal(err)
		}
		setMTU(t, mtu)
	})
	inode, device, err := linux.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	return &pod.Attachment{
		Key: pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"}, Netns: pod.Netns{Path: path, Inode: inode, Device: device},
		Interfaces: []pod.Interface{{Name: "eth0", Type: pod.TypeTap, Object: "weft-a", MTU: 1450}},
	}
}

func setMTU(t *testing.T, mtu int) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err == nil {
		err = netlink.LinkSetMTU(link, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstCheckEndsAChainForGood(t *testing.T) {
	netnstest.RequireTap(t)
	path, at := filepath.Join(t.TempDir(), "state.db"), linked(t, 1400)
	a, s := chainsOf(t, path)
	a.chains.observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	if !a.chains.isOpen(at.Key) {
		t.Error("the chain has ended with the ADD")
	}
	if mtus := a.chains.end(at); mtus["eth0"] != 1400 {
		t.Errorf("later plugins set %v", mtus)
	}
	netnstest.Do(t, at.Netns.Path, func() { setMTU(t, 1300) })
	a.chains.observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at}) // as when it loses a memif
	for range 2 {
		if mtus := a.chains.end(at); mtus["eth0"] != 1400 {
			t.Errorf("drift is taken for a later plugin's: %v", mtus)
		}
		a, s = restored(t, s, path, at)
	}
	a.chains.observe(podmanager.Outcome{Happening: podmanager.Removed, Key: at.Key, Attachment: at})
	a, s = restored(t, s, path, at)
	if !a.chains.isOpen(at.Key) {
		t.Error("what is known of a chain outlives its attachment")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAChainThatWasOpenEndsAfterARestart(t *testing.T) {
	netnstest.RequireTap(t)
	path, at := filepath.Join(t.TempDir(), "state.db"), linked(t, 1400)
	a, s := chainsOf(t, path)
	a.chains.observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	a, s = restored(t, s, path, at)
	known := func(pod.Key) (pod.Attachment, bool) { return *at, true }
	a.chains.endDue(known, time.Now())
	if a.chains.isOpen(at.Key) || a.chains.end(at)["eth0"] != 1400 {
		t.Errorf("open %v, changes %v", a.chains.isOpen(at.Key), a.chains.over)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAChainEndsByItselfAfterItsTime(t *testing.T) {
	netnstest.RequireTap(t)
	at := linked(t, 1400)
	a, s := chainsOf(t, filepath.Join(t.TempDir(), "state.db"))
	known := func(pod.Key) (pod.Attachment, bool) { return *at, true }
	began := time.Now()
	a.chains.observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	if a.chains.endDue(known, began.Add(chainTime/2)); !a.chains.isOpen(at.Key) {
		t.Error("it ended too early")
	}
	netnstest.Do(t, at.Netns.Path, func() { // it cannot be read
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetName(link, "eth9")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if a.chains.endDue(known, began.Add(2*chainTime)); !a.chains.isOpen(at.Key) {
		t.Error("it ended without having been read")
	}
	netnstest.Do(t, at.Netns.Path, func() {
		link, err := netlink.LinkByName("eth9")
		if err == nil {
			err = netlink.LinkSetName(link, "eth0")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if due := a.chains.due(began.Add(2 * chainTime)); len(due) != 0 {
		t.Error("a chain that could not be read has no time again")
	}
	a.chains.endDue(known, began.Add(4*chainTime))
	if mtus := a.chains.end(at); a.chains.isOpen(at.Key) || mtus["eth0"] != 1400 {
		t.Errorf("open %v, later plugins set %v", a.chains.isOpen(at.Key), mtus)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestChainEndsOfRemovedAttachmentsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	a, s := chainsOf(t, path)
	key := pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"}
	changes := map[string]linux.Changes{"weft-a": {MTU: 1400, Tables: map[netip.Prefix]int{netip.MustParsePrefix("0.0.0.0/0"): 100}}}
	a.chains.ends.Add(chainEnd{Key: key, Changes: changes})
	_, s = restored(t, s, path)
	a, s = restored(t, s, path)
	ends, err := statefile.Load[chainEnd](s, statefile.BucketChains, a.log)
	if err != nil || len(ends) != 0 {
		t.Errorf("ends %v, error %v", ends, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
