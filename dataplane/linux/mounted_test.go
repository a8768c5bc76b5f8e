package linux

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestAVethLeadsToItsPod(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(l.ground(), l.veth())...)
	netnstest.New(t) // one of several
	mounted, err := FindMounted()
	must(t, err)
	p, err := mounted.Peer(hostEnd)
	if want := (Peer{Path: l.path, Name: "eth1", Alias: alias}); err != nil || p != want {
		t.Errorf("peer %+v, error %v, want %+v", p, err, want)
	}
	s, err := InspectLink(p.Path, p.Name)
	if err != nil || !s.Veth || s.Tap {
		t.Errorf("link %+v, error %v", s, err)
	}
	if _, err := mounted.Peer("weftnone"); !errors.Is(err, ErrGone) {
		t.Errorf("of no veth: %v", err)
	}
	if p, err := (Mounted{}).Peer(hostEnd); err == nil || errors.Is(err, ErrGone) || p.Alias != alias {
		t.Errorf("in a namespace that is not mounted: %+v, error %v", p, err)
	}
}

func TestALinkThatLeadsNowhereIsTold(t *testing.T) {
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name, pair.PeerName = "here0", "here1"
	must(t, netlink.LinkAdd(pair))
	t.Cleanup(func() { must(t, netlink.LinkDel(pair)) })
	addDummy(t, "dummy0")
	t.Cleanup(func() { must(t, netlink.LinkDel(mustFind(t, "dummy0"))) })
	mounted, err := FindMounted()
	must(t, err)
	for _, name := range []string{"here0", "dummy0"} {
		if p, err := mounted.Peer(name); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%s: %+v, error %v", name, p, err)
		}
	}
}

func TestNamespacesAreFoundWhereTheyAreMounted(t *testing.T) {
	//nolint:dupword // so says mountinfo
	got := namespacePaths(`25 1 0:4 net:[4026532201] /run/netns/b rw shared:9 - nsfs nsfs rw
26 1 0:4 net:[4026532202] /run/netns/with\040blank rw - nsfs nsfs rw
27 1 0:4 mnt:[4026532203] /run/other rw - nsfs nsfs rw
28 1 8:1 / / rw - ext4 /dev/sda1 rw
29 1 0:4 net:[4026532201] /run/netns/a rw - nsfs nsfs rw
30 1 0:4 net:[4026532201] /run/netns/a rw - nsfs nsfs rw
31 1
`)
	if want := []string{"/run/netns/a", "/run/netns/b", "/run/netns/with blank"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
