package chain

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

// newTracker returns a tracker with the state file of that path.
func newTracker(t *testing.T, path string) (*Tracker, *statefile.File) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := statefile.Open(t.Context(), path, log)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		State:   s,
		View:    kvscheduler.New(kvscheduler.Config{}).View,
		Objects: func(*pod.Attachment) []string { return nil },
		Log:     log,
	}), s
}

// results loads the results of chains from a state file.
func results(t *testing.T, s *statefile.File) []Result {
	t.Helper()
	saved, err := statefile.Load[Result](s, statefile.BucketChains, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// restarted closes the state file, and returns the tracker of the next agent.
func restarted(
	t *testing.T, s *statefile.File, path string, attachments ...*pod.Attachment,
) (*Tracker, *statefile.File) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	chains, s := newTracker(t, path)
	chains.Restore(results(t, s), attachments)
	return chains, s
}

// linked returns an attachment whose link has the given MTU, which is not the desired one.
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
	inode, device, err := linux.InspectNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	return &pod.Attachment{
		Key:        pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"},
		Netns:      pod.Netns{Path: path, Inode: inode, Device: device},
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

func TestFirstCheckEndsAChain(t *testing.T) {
	netnstest.RequireTap(t)
	path := filepath.Join(t.TempDir(), "state.db")
	at := linked(t, 1400)
	chains, s := newTracker(t, path)
	chains.Observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	if !chains.isOpen(at.Key) {
		t.Error("the chain has ended with the ADD")
	}
	if mtus := chains.End(at); mtus["eth0"] != 1400 {
		t.Errorf("later plugins set %v", mtus)
	}
	netnstest.Do(t, at.Netns.Path, func() { setMTU(t, 1300) })
	// as if it had lost a memif
	chains.Observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	for range 2 {
		if mtus := chains.End(at); mtus["eth0"] != 1400 {
			t.Errorf("drift is recorded as a change of a later plugin: %v", mtus)
		}
		chains, s = restarted(t, s, path, at)
	}
	chains.Observe(podmanager.Outcome{Happening: podmanager.Removed, Key: at.Key, Attachment: at})
	chains, s = restarted(t, s, path, at)
	if !chains.isOpen(at.Key) {
		t.Error("the result of a chain outlives its attachment")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenChainEndsAfterARestart(t *testing.T) {
	netnstest.RequireTap(t)
	path := filepath.Join(t.TempDir(), "state.db")
	at := linked(t, 1400)
	chains, s := newTracker(t, path)
	chains.Observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	chains, s = restarted(t, s, path, at)
	known := func(pod.Key) (pod.Attachment, bool) { return *at, true }
	chains.endDue(known, time.Now())
	if chains.isOpen(at.Key) || chains.End(at)["eth0"] != 1400 {
		t.Errorf("open %v, changes %v", chains.isOpen(at.Key), chains.ended)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestChainEndsWithoutACheck(t *testing.T) {
	netnstest.RequireTap(t)
	at := linked(t, 1400)
	chains, s := newTracker(t, filepath.Join(t.TempDir(), "state.db"))
	known := func(pod.Key) (pod.Attachment, bool) { return *at, true }
	began := time.Now()
	chains.Observe(podmanager.Outcome{Happening: podmanager.Added, Key: at.Key, Attachment: at})
	if chains.endDue(known, began.Add(openTime/2)); !chains.isOpen(at.Key) {
		t.Error("the chain ended too early")
	}
	netnstest.Do(t, at.Netns.Path, func() { // the interface cannot be read
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetName(link, "eth9")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if chains.endDue(known, began.Add(2*openTime)); !chains.isOpen(at.Key) {
		t.Error("the chain ended although its interface could not be read")
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
	if due := chains.due(began.Add(2 * openTime)); len(due) != 0 {
		t.Error("a chain that could not be read got no other openTime")
	}
	chains.endDue(known, began.Add(4*openTime))
	if mtus := chains.End(at); chains.isOpen(at.Key) || mtus["eth0"] != 1400 {
		t.Errorf("open %v, later plugins set %v", chains.isOpen(at.Key), mtus)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestResultsOfRemovedAttachmentsAreDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	chains, s := newTracker(t, path)
	key := pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"}
	changes := map[string]linux.LinkChanges{
		"weft-a": {MTU: 1400, Tables: map[netip.Prefix]int{netip.MustParsePrefix("0.0.0.0/0"): 100}},
	}
	chains.results.Add(Result{Key: key, Changes: changes})
	_, s = restarted(t, s, path)
	_, s = restarted(t, s, path)
	if saved := results(t, s); len(saved) != 0 {
		t.Errorf("results %v", saved)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
