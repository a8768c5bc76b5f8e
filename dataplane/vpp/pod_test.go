package vpp

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// podOf is a pod's tap with everything on both of its ends; a veth where the dataplane has no taps.
func podOf(t *testing.T, path string) []object {
	t.Helper()
	inode, device, err := linux.InspectNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	const (
		name = "pod-a"
		link = "eth0"
	)
	if !dataplane.HasTaps() {
		on := wire.VethKey(name)
		return append(routedPod(name, wire.LinuxAddress{On: on, Namespace: path, Link: link}),
			object{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: inode, Device: device}},
			object{
				on,
				wire.Veth{
					Namespace: path,
					Name:      link,
					MAC:       mac2,
					HostName:  "weft" + name,
					HostMAC:   mac3,
					MTU:       1500,
					Alias:     "weft:a",
					Up:        true,
				},
			},
			afPacket(name, wire.Interface{MAC: mac1, MTU: 1500, Up: true}))
	}
	on := wire.TapPeerKey(name)
	return append(routedPod(name, wire.LinuxAddress{On: on, Namespace: path, Link: link}),
		object{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: inode, Device: device}},
		object{wire.InterfaceKey(name), wire.Interface{Type: wire.TypeTap, MAC: mac1, MTU: 1500, Up: true,
			Tap: wire.Tap{Namespace: path, Name: link, MAC: mac2, MTU: 1500}}},
		object{
			on,
			wire.TapPeer{Interface: name, Namespace: path, Name: link, MAC: mac2, MTU: 1500, Alias: "weft:a", Up: true},
		})
}

// routedPod returns all objects on both ends of the named interface. The dataplane's end has mac1; the Linux end has
// mac2 and is at at.
func routedPod(name string, at wire.LinuxAddress) []object {
	on := at.On
	path := at.Namespace
	link := at.Link
	own4 := netip.MustParsePrefix("10.1.0.1/32")
	own6 := netip.MustParsePrefix("fd00:1::1/128")
	gate4 := netip.MustParseAddr("169.254.1.1")
	gate6 := netip.MustParseAddr("fe80::1")
	objects := []object{
		member(name, netaddr.IP4), member(name, netaddr.IP6),
		{wire.UnnumberedKey(name), wire.Unnumbered{Interface: name, Donor: "gate", IP4: true, IP6: true}},
		addressOn(name, "fe80::1/128"),
		neighbourOn(name, own4.Addr().String(), mac2), neighbourOn(name, own6.Addr().String(), mac2),
		routeTo(own4.String(), wire.Path{Interface: name, NextHop: own4.Addr()}),
		routeTo(own6.String(), wire.Path{Interface: name, NextHop: own6.Addr()}),
	}
	for _, own := range []netip.Prefix{own4, own6} {
		at.Prefix = own
		objects = append(objects, object{wire.LinuxAddressKey(on, own), at})
	}
	for _, gate := range []netip.Addr{gate4, gate6} {
		all := netip.PrefixFrom(gate, 0).Masked()
		objects = append(objects,
			object{
				wire.LinuxNeighbourKey(on, gate),
				wire.LinuxNeighbour{On: on, Namespace: path, Link: link, Address: gate, MAC: mac1},
			},
			object{
				wire.LinuxRouteKey(on, all),
				wire.LinuxRoute{On: on, Namespace: path, Link: link, Destination: all, Gateway: gate},
			})
	}
	return objects
}

// newWholeLab also has the kernel's kinds, and a client that reconnects.
func newWholeLab(t *testing.T, socket string, connected func(string)) *lab {
	t.Helper()
	netnstest.RequireTap(t)
	l := &lab{T: t, s: kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})}
	l.client = connect(t, socket, Options{Events: Events{Connected: connected}, Redial: 5 * time.Millisecond})
	if err := Register(l.s, l.client); err != nil {
		t.Fatal(err)
	}
	if err := linux.Register(l.s, linux.Options{}); err != nil {
		t.Fatal(err)
	}
	background(t, l.s.Run)
	background(t, l.client.Run)
	l.s.Ready("test")
	return l
}

// revive kills the dataplane and starts it again; the objects come back.
func (l *lab) revive(d *ruins, connected <-chan string, objects []object) {
	l.Helper()
	d.kill(l.T)
	d.start(l.T)
	select {
	case <-connected:
	case <-time.After(time.Minute):
		l.Fatal("not connected again")
	}
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{Reopen: func() bool { return true }}); err != nil {
		l.Fatal(err)
	}
	l.wait(objects)
	l.quiet()
}

// wait waits until the objects are as they should be.
func (l *lab) wait(objects []object) {
	l.Helper()
	var refs []kvscheduler.Ref
	for _, o := range objects {
		r, err := kvscheduler.ParseRef(o.key)
		if err != nil {
			l.Fatal(err)
		}
		refs = append(refs, r)
	}
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	if err := kvschedulertest.Wait(ctx, l.s, refs); err != nil {
		l.Errorf("not all is back: %v", err)
	}
}

func TestPodComesBackAfterTheDataplaneDied(t *testing.T) {
	d := newRuins(t)
	connected := make(chan string, 10)
	l := newWholeLab(t, d.socket, func(v string) { connected <- v })
	<-connected
	path := netnstest.New(t)
	pod := append(ground(), podOf(t, path)...)
	l.mustCommit(pod...)
	l.quiet()

	l.revive(d, connected, pod)

	netnstest.Remove(t, path) // the runtime's DEL may come after the namespace has gone
	for i := range pod {
		pod[i].value = nil
	}
	l.mustCommit(pod...)
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
