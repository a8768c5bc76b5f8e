package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// virtual is an instance of VRRP with its address on the network of the test.
type virtual struct {
	version, router int
	address         netip.Prefix
	mac             string // of the virtual router; "": the instance uses the MAC of its interface
}

// virtuals has both versions, both families, and both kinds of MACs.
func virtuals() []virtual {
	return []virtual{
		{2, 51, netip.MustParsePrefix("10.5.0.100/24"), ""},
		{3, 52, netip.MustParsePrefix("10.5.0.101/24"), ""},
		{3, 53, netip.MustParsePrefix("fd05::100/64"), ""},
		{2, 54, netip.MustParsePrefix("10.5.0.102/24"), "00:00:5e:00:01:36"},
		{3, 55, netip.MustParsePrefix("fd05::101/64"), "00:00:5e:00:02:37"},
	}
}

// permitted are the options of an interface that may have the addresses and MACs of virtuals.
const permitted = `{"t1": {"allowedAddresses": ["10.5.0.100", "10.5.0.101", "10.5.0.102", "fd05::100/127"],
	"virtualRouters": [54, 55]}}`

// newVIPLab is a lab whose network blue permits the addresses of virtuals.
func newVIPLab(t *testing.T) *lab {
	t.Helper()
	if _, err := exec.LookPath("keepalived"); err != nil {
		if strings.Contains(os.Getenv("WEFT_REQUIRE"), "keepalived") {
			t.Fatal(err)
		}
		t.Skip("keepalived is required:", err)
	}
	l := newLabWith(t, programs.Build(t), node.Options{Embedded: true})
	must.Succeed(t, l.SetNetworks([]node.Network{{
		Name: "blue", Type: "L2", AntiSpoof: true,
		CIDRs:            []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24"), netip.MustParsePrefix("fd05::/64")},
		AllowedAddresses: []string{"10.5.0.100-10.5.0.110", "fd05::100/120"},
		VirtualRouters:   []int{54, 55},
	}}))
	must.Succeed(t, errors.Join(l.StopAgent(), l.StartAgent(t.Context())))
	return l
}

// member adds a pod with an interface t1 on the network blue.
func (l *lab) member(name, kind, options string) *node.Pod {
	l.Helper()
	p := l.pod(name)
	annotations := map[string]string{customInterfaces: "t1/" + kind + "/blue"}
	if options != "" {
		annotations[customOptions] = options
	}
	l.cni("ADD", p, annotated(annotations))
	return p
}

// daemon is a keepalived in a pod.
type daemon struct {
	cmd *exec.Cmd
	log string
}

// stop ends the daemon as an init system does; it may be repeated.
func (d *daemon) stop() {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	}
}

// announced reports whether the daemon told the neighbours that it has an address.
func (d *daemon) announced(a netip.Addr) bool {
	said, _ := os.ReadFile(d.log)
	for line := range strings.Lines(string(said)) {
		isAnnouncement := strings.Contains(line, "ending gratuitous ARP") || strings.Contains(line, "eighbour Advert")
		if isAnnouncement && strings.HasSuffix(strings.TrimSpace(line), " "+a.String()) {
			return true
		}
	}
	return false
}

// keepalived runs keepalived in a pod with these instances.
func (l *lab) keepalived(p *node.Pod, priority int, instances []virtual) *daemon {
	l.Helper()
	dir := l.TempDir()
	var text strings.Builder
	text.WriteString("global_defs {\n router_id weft\n}\n")
	for _, v := range instances {
		fmt.Fprintf(&text, "vrrp_instance v%d {\n version %d\n state BACKUP\n interface t1\n virtual_router_id %d\n"+
			" priority %d\n advert_int 1\n", v.router, v.version, v.router, priority)
		if v.mac != "" {
			fmt.Fprintf(&text, " use_vmac vrrp.%d\n", v.router)
		}
		fmt.Fprintf(&text, " virtual_ipaddress {\n  %s\n }\n}\n", v.address)
	}
	file := filepath.Join(dir, "keepalived.conf")
	must.Succeed(l.T, os.WriteFile(file, []byte(text.String()), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	must.Succeed(l.T, err)
	cmd := exec.CommandContext(l.Context(), "keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp",
		"--use-file", file, "--pid", filepath.Join(dir, "pid"), "--vrrp_pid", filepath.Join(dir, "vrrp.pid"))
	cmd.Stdout = log
	cmd.Stderr = log
	netnstest.Do(l, p.Netns, func() { err = cmd.Start() })
	must.Succeed(l.T, errors.Join(err, log.Close()))
	d := &daemon{cmd, log.Name()}
	l.Cleanup(func() {
		d.stop()
		if said, err := os.ReadFile(d.log); l.Failed() && err == nil {
			l.Logf("keepalived of %s:\n%s", p.Name, said)
		}
	})
	return d
}

// mustServe waits until the client knows the MAC of each virtual address on its own, as that of the pod where the
// instance uses the MAC of its interface, and reaches the address.
func (l *lab) mustServe(client, by *node.Pod, instances []virtual) {
	l.Helper()
	for _, v := range instances {
		if v.mac == "" {
			l.knows(client, v.address.Addr(), by)
		}
	}
	for _, v := range instances {
		l.mustReach(client, v.address.Addr())
		if v.mac != "" && l.neighbour(client, v.address.Addr()) != v.mac {
			l.Errorf("the client has MAC %s for %s, want %s", l.neighbour(client, v.address.Addr()), v.address, v.mac)
		}
	}
}

// neighbour returns the MAC that the link t1 of a pod has for an address.
func (l *lab) neighbour(p *node.Pod, address netip.Addr) (mac string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		entries, err := netlink.NeighList(mustLink(l.T, "t1").Attrs().Index, netlink.FAMILY_ALL)
		must.Succeed(l.T, err)
		for _, n := range entries {
			if n.IP.Equal(net.IP(address.AsSlice())) {
				mac = cmp.Or(mac, n.HardwareAddr.String())
			}
		}
	})
	return mac
}

// has reports whether a link of a pod has an address.
func (l *lab) has(p *node.Pod, address netip.Addr) (has bool) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		must.Succeed(l.T, err)
		for _, a := range list {
			has = has || a.IP.Equal(net.IP(address.AsSlice()))
		}
	})
	return has
}

// awaitMaster waits until a pod has the addresses of all instances.
func (l *lab) awaitMaster(p *node.Pod, instances []virtual) {
	l.Helper()
	for _, v := range instances {
		l.await(func() bool { return l.has(p, v.address.Addr()) }, p.Name+" is master of "+v.address.String())
	}
}

// A pair of pods runs keepalived. The addresses move when the master stops, and when its pod is deleted; a neighbour
// learns it without sending anything.
func TestVirtualAddressesMoveBetweenPods(t *testing.T) {
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			l := newVIPLab(t)
			client := l.member("client", kind, "")
			one := l.member("one", kind, permitted)
			two := l.member("two", kind, permitted)
			first := l.keepalived(one, 200, virtuals())
			l.awaitMaster(one, virtuals())
			l.keepalived(two, 100, virtuals())
			for _, v := range virtuals() {
				l.mustReach(client, v.address.Addr())
			}
			l.mustServe(client, one, virtuals())

			first.stop()
			l.awaitMaster(two, virtuals())
			l.mustServe(client, two, virtuals())

			l.keepalived(one, 200, virtuals())
			l.awaitMaster(one, virtuals())
			l.mustServe(client, one, virtuals())

			l.cni("DEL", one, nil) // without a word to the other one
			l.awaitMaster(two, virtuals())
			l.mustServe(client, two, virtuals())
		})
	}
}

// A pod of the network takes the addresses of a pair, by instances of its own. Without the permission its neighbours do
// not notice; with it they do, so the test can tell the difference.
func TestAPodWithoutPermissionCannotTakeAVirtualAddress(t *testing.T) {
	l := newVIPLab(t)
	client := l.member("client", "tap", "")
	owner := l.member("owner", "tap", permitted)
	l.keepalived(owner, 200, virtuals())
	l.awaitMaster(owner, virtuals())
	for _, v := range virtuals() {
		l.mustReach(client, v.address.Addr())
	}
	l.mustServe(client, owner, virtuals())

	var stolen []virtual // by other virtual routers, so that the owner stays master
	for _, v := range virtuals() {
		if v.mac == "" {
			v.router += 100
			stolen = append(stolen, v)
		}
	}
	for _, options := range []string{"", permitted} {
		thief := l.member("thief"+fmt.Sprint(len(options)), "tap", options)
		taker := l.keepalived(thief, 250, stolen)
		l.awaitMaster(thief, stolen)
		for _, v := range stolen {
			a := v.address.Addr()
			l.await(func() bool { return taker.announced(a) }, "announcement of "+a.String()+" by "+thief.Name)
			if options != "" {
				l.knows(client, a, thief)
				continue
			}
			l.mustReach(client, a)
			l.knows(client, a, owner)
		}
		taker.stop()
		l.cni("DEL", thief, nil)
	}
}
