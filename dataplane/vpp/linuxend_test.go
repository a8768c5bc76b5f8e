package vpp

import (
	"strings"
	"testing"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// The dataplane sets a tap up in the pod when it makes it: neighbours that send router advertisements must not reach it
// before it is hardened, also after a restart of the dataplane.
func TestATapJoinsABridgeDomainBehindItsLinuxEnd(t *testing.T) {
	if !dataplane.HasTaps() {
		t.Skip("needs a dataplane with taps")
	}
	d := newRuins(t)
	connected := make(chan string, 10)
	l := newWholeLab(t, d.socket, func(v string) { connected <- v })
	<-connected
	path := netnstest.New(t)
	inode, device, err := linux.InspectNamespace(path)
	must(t, err)
	on := wire.TapPeerKey("a")
	end := object{
		on,
		wire.TapPeer{Interface: "a", Namespace: path, Name: "eth0", MAC: mac2, MTU: 1500, Alias: "weft:a", Up: true},
	}
	joins := inBridge("weft:blue", "a", func(m *wire.BridgeMember) { m.LinuxEnd = on })
	all := []object{
		{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: inode, Device: device}},
		bridge("weft:blue", learning(7)),
		{wire.InterfaceKey("a"), wire.Interface{Type: wire.TypeTap, MAC: mac1, MTU: 1500, Up: true,
			Tap: wire.Tap{Namespace: path, Name: "eth0", MAC: mac2, MTU: 1500}}}, joins,
	}
	if err := l.commit(all...); err == nil || !strings.Contains(err.Error(), on) {
		t.Errorf("without its Linux end: %v", err)
	}
	all = append(all, end)
	l.mustCommit(all...)
	l.quiet()
	l.alwaysBefore(0, end.key, joins.key)
	var since uint64
	for r := range l.s.Log(0) {
		since = r.Seq
	}
	l.revive(d, connected, all)
	for i := range all {
		all[i].value = nil
	}
	l.mustCommit(all...)
	l.alwaysBefore(since, end.key, joins.key)
}
