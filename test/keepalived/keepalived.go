// Package keepalived runs keepalived, a program for VRRP, in the network namespaces of pods.
package keepalived

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/thirdparty"
)

// Require skips the test without keepalived, or fails it if WEFT_REQUIRE names keepalived.
func Require(t testing.TB) {
	t.Helper()
	thirdparty.Require(t, "keepalived")
}

// Instance is an instance of VRRP with its address.
type Instance struct {
	Version, Router int
	Address         netip.Prefix
	MAC             string // of the virtual router; "": the instance uses the MAC of its interface
}

// Instances are instances of both versions, both families and both kinds of MACs.
func Instances() []Instance {
	return []Instance{
		{2, 51, netip.MustParsePrefix("10.5.0.100/24"), ""},
		{3, 52, netip.MustParsePrefix("10.5.0.101/24"), ""},
		{3, 53, netip.MustParsePrefix("fd05::100/64"), ""},
		{2, 54, netip.MustParsePrefix("10.5.0.102/24"), "00:00:5e:00:01:36"},
		{3, 55, netip.MustParsePrefix("fd05::101/64"), "00:00:5e:00:02:37"},
	}
}

// Options are the options of an interface that may have the addresses and MACs of Instances.
const Options = `{"allowedAddresses": ["10.5.0.100", "10.5.0.101", "10.5.0.102", "fd05::100/127"],
	"virtualRouters": [54, 55]}`

// Daemon is a keepalived in a namespace.
type Daemon struct{ *thirdparty.Daemon }

// Start runs keepalived on the link t1 of a namespace until the test ends. The instances send an advertisement each
// second.
func Start(t testing.TB, netns string, priority int, instances []Instance) *Daemon {
	t.Helper()
	var text strings.Builder
	text.WriteString("global_defs {\n router_id weft\n}\n")
	for _, i := range instances {
		fmt.Fprintf(&text, "vrrp_instance v%d {\n version %d\n state BACKUP\n interface t1\n virtual_router_id %d\n"+
			" priority %d\n advert_int 1\n", i.Router, i.Version, i.Router, priority)
		if i.MAC != "" {
			fmt.Fprintf(&text, " use_vmac vrrp.%d\n", i.Router)
		}
		fmt.Fprintf(&text, " virtual_ipaddress {\n  %s\n }\n}\n", i.Address)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "keepalived.conf")
	must.Succeed(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return &Daemon{thirdparty.Start(t, netns, "keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp",
		"--use-file", file, "--pid", filepath.Join(dir, "pid"), "--vrrp_pid", filepath.Join(dir, "vrrp.pid"))}
}

// Announced reports whether the daemon told the neighbours that it has an address.
func (d *Daemon) Announced(a netip.Addr) bool {
	for line := range strings.Lines(d.Output()) {
		isAnnouncement := strings.Contains(line, "ending gratuitous ARP") || strings.Contains(line, "eighbour Advert")
		if isAnnouncement && strings.HasSuffix(strings.TrimSpace(line), " "+a.String()) {
			return true
		}
	}
	return false
}

// Has reports whether a link of a namespace has an address: whether an instance there is the master.
func Has(t testing.TB, netns string, address netip.Addr) (has bool) {
	t.Helper()
	netnstest.Do(t, netns, func() {
		list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		must.Succeed(t, err)
		for _, a := range list {
			has = has || a.IP.Equal(net.IP(address.AsSlice()))
		}
	})
	return has
}
