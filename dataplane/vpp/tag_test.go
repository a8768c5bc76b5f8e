package vpp

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/wire"
)

func TestTagTellsNameAndHashAndFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9/:.-]{1,48}`).Draw(t, "name")
		v := wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{
			Namespace: rapid.String().Draw(t, "namespace"),
			Name:      rapid.String().Draw(t, "link"),
			MTU:       rapid.Int().Draw(t, "mtu"),
		}}
		tag := interfaceTag(name, v)
		got, hash, ok := parseTag(tag)
		if !ok || got != name || hash != interfaceHash(v) || len(tag) > 63 {
			t.Fatalf("tag %q reads as %q, %x, %v", tag, got, hash, ok)
		}
	})
}

// An interface of another program must be neither changed nor deleted.
func TestATagOfAnotherProgramIsNotWefts(t *testing.T) {
	for _, tag := range []string{
		"", "name", "name#", "#0123456789ab", "port#1", "port#0123456789a", "port#0123456789abc", "port#0123456789ag",
	} {
		if name, _, ours := parseTag(tag); ours {
			t.Errorf("tag %q is taken for that of %q", tag, name)
		}
	}
}

func TestHashChangesWithEachFieldThatCannotBeReadBack(t *testing.T) {
	base := wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Namespace: "/n", Name: "eth0", MAC: mac1, MTU: 1500}}
	changes := map[string]func(*wire.Interface){
		"type":      func(v *wire.Interface) { v.Type = wire.TypeLoopback },
		"namespace": func(v *wire.Interface) { v.Tap.Namespace = "/m" },
		"link":      func(v *wire.Interface) { v.Tap.Name = "eth1" },
		"MAC":       func(v *wire.Interface) { v.Tap.MAC = mac2 },
		"MTU":       func(v *wire.Interface) { v.Tap.MTU = 1400 },
		"queues":    func(v *wire.Interface) { v.Tap.Queues = 2 },
	}
	for name, change := range changes {
		v := base
		change(&v)
		if interfaceHash(v) == interfaceHash(base) {
			t.Errorf("another %s has the same hash", name)
		}
	}
	v := base
	v.Up = true
	v.MTU = 9000
	v.MAC = mac3
	v.Tap.Queues = 1
	if interfaceHash(v) != interfaceHash(base) {
		t.Error("what can be read back is in the hash")
	}
}

func TestHashOfAnInterfaceOnALink(t *testing.T) {
	of := func(link, on string) uint64 {
		return interfaceHash(wire.Interface{Type: wire.TypeAFPacket, AFPacket: wire.AFPacket{Link: link, On: on}})
	}
	if of("a", "linux.veth/a") == of("b", "linux.veth/a") || of("a", "linux.veth/a") == of("a", "linux.veth/b") {
		t.Error("another link has the same hash")
	}
	queued := func(rx, tx int) uint64 {
		return interfaceHash(wire.Interface{
			Type:     wire.TypeAFPacket,
			AFPacket: wire.AFPacket{Link: "a", On: "linux.veth/a", RxQueues: rx, TxQueues: tx},
		})
	}
	if queued(1, 1) != of("a", "linux.veth/a") || queued(2, 0) == queued(0, 2) || queued(2, 1) != queued(2, 0) ||
		queued(2, 2) == queued(2, 1) {
		t.Error("the queues are not in the hash, or one is another than none said")
	}
}

func TestHashOfAMemifChangesWithEachField(t *testing.T) {
	base := memifOn("m1", "a", 1)
	seen := map[uint64]string{interfaceHash(base.value.(wire.Interface)): "none"}
	for name, change := range map[string]func(*wire.Memif){
		"socket": func(m *wire.Memif) { m.Socket = "b" },
		"id":     func(m *wire.Memif) { m.ID = 2 },
		"mode":   func(m *wire.Memif) { m.Mode = wire.MemifIP },
		"secret": func(m *wire.Memif) { m.Secret = "open sesami" },
		"ring":   func(m *wire.Memif) { m.RingSize = 2048 },
		"buffer": func(m *wire.Memif) { m.BufferSize = 1024 },
		"rx":     func(m *wire.Memif) { m.RxQueues = 2 },
		"tx":     func(m *wire.Memif) { m.TxQueues = 2 },
	} {
		hash := interfaceHash(base.with(func(v *wire.Interface) { change(&v.Memif) }).value.(wire.Interface))
		if other, taken := seen[hash]; taken {
			t.Errorf("another %s has the same hash as another %s", name, other)
		}
		seen[hash] = name
	}
	same := base.with(func(v *wire.Interface) {
		v.MAC = mac2
		v.MTU = 9000
		v.Up = false
	})
	if _, is := seen[interfaceHash(same.value.(wire.Interface))]; !is {
		t.Error("what can be read back is in the hash")
	}
}

func TestHashesStayTheSame(t *testing.T) {
	tap := wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Namespace: "/n", Name: "eth0", MAC: mac1, MTU: 1500}}
	if got := interfaceTag("a", tap); got != "a#7e8f417f9fec" { // otherwise a new agent would recreate every interface
		t.Errorf("tag %s", got)
	}
	if got := interfaceTag("m", memifOn("m", "a", 1).value.(wire.Interface)); got != "m#80a0a7f0d65f" {
		t.Errorf("tag %s", got)
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("pod-a#0123456789ab")
	f.Add("#0123456789ab")
	f.Add("a#+123456789ab")
	f.Add("a##")
	f.Fuzz(func(t *testing.T, tag string) {
		name, hash, ok := parseTag(tag)
		if ok && (name == "" || hash >= 1<<hashBits || !strings.HasPrefix(tag, name+"#")) {
			t.Errorf("tag %q reads as %q, %x", tag, name, hash)
		}
	})
}
