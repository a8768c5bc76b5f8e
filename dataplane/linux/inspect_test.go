package linux

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netns"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

func TestInspectLinkReadsTheConfigurationOfALink(t *testing.T) {
	l := newLab(t)
	four := netip.MustParsePrefix("10.1.0.5/32")
	six := netip.MustParsePrefix("2001:db8::5/128")
	l.mustCommit(append(l.ground(), l.address(four.String()), l.address(six.String()))...)
	s, err := InspectLink(l.path, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(s.Addresses, netip.Prefix.Compare)
	if !slices.Equal(s.Addresses, []netip.Prefix{four, six}) {
		t.Errorf("addresses %v, want %s and %s", s.Addresses, four, six)
	}
	inode, device, err := InspectNamespace(l.path)
	must(t, err)
	if s.Inode != inode || s.Device != device || s.Alias != alias || !s.Tap || s.MAC != mac1 || s.MTU != 1400 {
		t.Errorf("link %+v", s)
	}
}

func TestInspectLinkFailsForMissingLinksAndNamespaces(t *testing.T) {
	path := netnstest.New(t)
	if s, err := InspectLink(path, "eth0"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("no link: %+v, error %v", s, err)
	}
	netnstest.Remove(t, path)
	if s, err := InspectLink(path, "eth0"); !errors.Is(err, ErrGone) {
		t.Errorf("no namespace: %+v, error %v", s, err)
	}
	if s, err := InspectLink(netns.Own, "lo"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("the agent's namespace: %+v, error %v", s, err)
	}
}

func TestInspectLinkReadsAForeignLink(t *testing.T) {
	path := netnstest.New(t)
	netnstest.Do(t, path, func() { addDummy(t, "eth0") })
	s, err := InspectLink(path, "eth0")
	if err != nil || s.Tap || s.Alias != "" || s.MAC == (netaddr.MAC{}) {
		t.Errorf("link %+v, error %v", s, err)
	}
}

func TestVXLANDevicesOnAPortAreListed(t *testing.T) {
	path := netnstest.New(t)
	netnstest.Do(t, path, func() {
		for name, v := range map[string]netlink.Vxlan{
			"calico": {VxlanId: 4096, Port: wire.VXLANPort}, "flannel": {VxlanId: 1, Port: 8472}, "ovs": {
				FlowBased: true,
				Port:      wire.VXLANPort,
			},
		} {
			v.LinkAttrs = netlink.LinkAttrs{Name: name}
			must(t, netlink.LinkAdd(&v))
		}
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		got, err := VXLANDevices(wire.VXLANPort)
		must(t, err)
		slices.SortFunc(got, func(a, b VXLANDevice) int { return strings.Compare(a.Name, b.Name) })
		if want := []VXLANDevice{{Name: "calico", VNI: 4096}, {Name: "ovs", AnyVNI: true}}; !slices.Equal(got, want) {
			t.Errorf("devices %+v, want %+v", got, want)
		}
	})
}

// visited is the environment variable with the namespace for the second process.
const visited = "WEFT_TEST_VISITED"

// TestInspectNamespaceIgnoresTheNamespaceOfTheFirstThread enters the namespace with threads until the process's first
// one is among them. It runs in a separate process, since the runtime stops using the first thread after a locked
// goroutine has ended on it.
func TestInspectNamespaceIgnoresTheNamespaceOfTheFirstThread(t *testing.T) {
	path := os.Getenv(visited)
	if path == "" {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		alone.Env = append(os.Environ(), visited+"="+netnstest.New(t))
		out, err := alone.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	leave := make(chan struct{})
	first := make(chan bool)
	var visits sync.WaitGroup
	defer visits.Wait()
	defer close(leave)
	const most = 200
	for n, among := 0, false; !among; n++ {
		if n == most {
			t.Fatalf("the process's first thread is not among %d", most)
		}
		visits.Go(func() {
			must(t, inNamespace(path, netnsID{}, func(*handle) error {
				first <- unix.Gettid() == unix.Getpid()
				<-leave
				return nil
			}))
		})
		among = <-first
	}
	if _, _, err := InspectNamespace(path); err != nil {
		t.Error(err)
	}
}

func TestPeerFindsThePodsEndOfAVeth(t *testing.T) {
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

func TestPeerFailsForLinksWithoutAPodsEnd(t *testing.T) {
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name = "here0"
	pair.PeerName = "here1"
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

func TestMountPointsOfNamespacesAreFound(t *testing.T) {
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

func TestInTheWayDescribesOnlyALinkThatExists(t *testing.T) {
	path := netnstest.New(t)
	netnstest.Do(t, path, func() { addDummy(t, "eth0") })
	if err := InTheWay(path, "eth0"); err == nil ||
		err.Error() != "link eth0 already exists: a dummy without an alias of Weft" {
		t.Errorf("of an existing link: %v", err)
	}
	for _, at := range []string{path, path + "-absent"} {
		if err := InTheWay(at, "eth1"); err != nil {
			t.Errorf("of no link: %v", err)
		}
	}
}
