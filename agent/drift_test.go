package agent

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// driftLab is a node with two pods.
type driftLab struct {
	*lab
	pod, other *node.Pod
	result     []byte // of the pod's ADD
	address    netip.Addr
}

func newDriftLab(t *testing.T, linkType string, flags ...string) *driftLab {
	t.Helper()
	l := newLabWith(t, programs.Build(t), node.Options{PodInterface: linkType, Embedded: true})
	if err := errors.Join(l.StopAgent(), l.StartAgent(t.Context(), flags...)); err != nil {
		t.Fatal(err)
	}
	d := &driftLab{lab: l, pod: l.pod("one"), other: l.pod("other")}
	d.result = l.cni("ADD", d.pod, nil)
	l.cni("ADD", d.other, nil)
	d.address = l.addresses(d.result)[0]
	l.mustReach(d.other, d.address)
	return d
}

// inPod changes the link of the pod.
func (d *driftLab) inPod(change func(link netlink.Link) error) {
	d.Helper()
	netnstest.Do(d, d.pod.Netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = change(link)
		}
		if err != nil {
			d.Error(err)
		}
	})
}

// hostLink returns the host end of the pod's veth.
func (d *driftLab) hostLink() netlink.Link {
	d.Helper()
	index := 0
	d.inPod(func(link netlink.Link) error {
		index = link.Attrs().ParentIndex
		return nil
	})
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		d.Fatal(err)
	}
	return link
}

// inDataplane changes the dataplane over its API.
func (d *driftLab) inDataplane(change func(conn api.Connection) error) {
	d.Helper()
	conn, err := govpp.Connect(d.DataplaneSocket())
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Disconnect()
	if err := change(conn); err != nil {
		d.Fatal(err)
	}
}

// text returns the output of weftctl.
func (d *driftLab) text(args ...string) string {
	d.Helper()
	text, err := d.Weftctl(d.Context(), args...)
	if err != nil {
		d.Fatal(err)
	}
	return text
}

// driftEvents returns the lines of the events about drift.
func (d *driftLab) driftEvents() (lines []string) {
	d.Helper()
	for line := range strings.Lines(d.text("events", "--last", "0")) {
		if strings.Contains(line, "drift re") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// awaitDriftEvent waits for an event about drift that contains words.
func (d *driftLab) awaitDriftEvent(words string) {
	d.Helper()
	d.await(func() bool {
		return slices.ContainsFunc(d.driftEvents(), func(line string) bool { return strings.Contains(line, words) })
	}, "an event about drift with "+words)
}

// The period of the audit is a day, so only a notification can cause the repair.
func TestNotifiedDriftIsRepaired(t *testing.T) {
	for name, tt := range map[string]struct {
		linkType string
		change   func(d *driftLab)
		words    string // of the event
	}{
		"veth deleted on the node": {"veth", func(d *driftLab) {
			if err := netlink.LinkDel(d.hostLink()); err != nil {
				d.Fatal(err)
			}
		}, "drift repaired: linux.veth/"},
		"veth deleted in the pod": {
			"veth", func(d *driftLab) { d.inPod(netlink.LinkDel) }, "drift repaired: linux.veth/",
		},
		"veth set down in the pod": {
			"veth", func(d *driftLab) { d.inPod(netlink.LinkSetDown) }, "drift repaired: linux.",
		},
		"tap deleted in the pod": {"tap", func(d *driftLab) { d.inPod(netlink.LinkDel) }, "drift repaired: "},
		"address deleted in the pod": {
			"veth", func(d *driftLab) { d.inPod(deleteAddresses) }, "drift repaired: linux.address/",
		},
		"routes deleted in the pod": {
			"tap", func(d *driftLab) { d.inPod(deleteRoutes) }, "drift repaired: linux.route/",
		},
		"interface of the dataplane deleted": {"veth", func(d *driftLab) {
			host := d.hostLink().Attrs().Name
			d.inDataplane(func(conn api.Connection) error {
				_, err := af_packet.NewServiceClient(conn).AfPacketDelete(d.Context(), &af_packet.AfPacketDelete{
					HostIfName: host,
				})
				return err
			})
		}, "drift repaired: vpp.interface/"},
		"interface of the dataplane set down": {"veth", func(d *driftLab) {
			d.inDataplane(func(conn api.Connection) error {
				down := &interfaces.SwInterfaceSetFlags{SwIfIndex: d.interfaceIndex(conn)}
				_, err := interfaces.NewServiceClient(conn).SwInterfaceSetFlags(d.Context(), down)
				return err
			})
		}, "drift repaired: vpp.interface/"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriftLab(t, tt.linkType, "--audit=24h")
			tt.change(d)
			d.awaitDriftEvent(tt.words)
			d.check(d.pod, d.result)
			d.mustReach(d.other, d.address)
			if events := d.driftEvents(); len(events) != 1 {
				t.Errorf("all that depends on it is repaired in %d events, want 1: %q", len(events), events)
			}
			if text := d.text("transactions"); !strings.Contains(text, tt.words) {
				t.Errorf("no transaction has the label %q:\n%s", tt.words, text)
			}
		})
	}
}

// interfaceIndex returns the number of the pod's interface in the dataplane.
func (d *driftLab) interfaceIndex(conn api.Connection) interface_types.InterfaceIndex {
	d.Helper()
	host := d.hostLink().Attrs().Name
	stream, err := af_packet.NewServiceClient(conn).AfPacketDump(d.Context(), &af_packet.AfPacketDump{})
	for err == nil {
		var i *af_packet.AfPacketDetails
		if i, err = stream.Recv(); err == nil && i.HostIfName == host {
			return i.SwIfIndex
		}
	}
	d.Fatalf("find the interface on %s: %v", host, err)
	return 0
}

func deleteAddresses(link netlink.Link) error {
	list, err := netlink.AddrList(link, netlink.FAMILY_V4)
	for _, a := range list {
		err = errors.Join(err, netlink.AddrDel(link, &a))
	}
	return err
}

func deleteRoutes(link netlink.Link) error {
	list, err := netlink.RouteList(link, netlink.FAMILY_V4)
	for _, r := range list {
		if r.Gw != nil {
			err = errors.Join(err, netlink.RouteDel(&r))
		}
	}
	return err
}

// The backoff keeps a pod from occupying the agent, and from filling the log.
func TestObjectThatKeepsDriftingIsRepairedWithBackoff(t *testing.T) {
	d := newDriftLab(t, "veth", "--audit=24h")
	tick := time.NewTicker(20 * time.Millisecond)
	over := time.After(20 * time.Second)
	defer tick.Stop()
	for flapping := true; flapping; {
		select {
		case <-tick.C:
			d.inPod(deleteAddresses)
		case <-over:
			flapping = false
		}
	}
	// 3 s after the first loss; then after pauses of 1, 2 and 4 s, again 3 s after a loss
	if n := len(d.driftEvents()); n < 2 || n > 4 {
		t.Errorf("%d repairs in 20 s, want 2 to 4", n)
	}
	d.await(func() bool { return !d.lacksAddress() }, "the repair after the last change")
	d.check(d.pod, d.result)
}

func (d *driftLab) lacksAddress() (lacks bool) {
	d.Helper()
	d.inPod(func(link netlink.Link) error {
		list, err := netlink.AddrList(link, netlink.FAMILY_V4)
		lacks = len(list) == 0
		return err
	})
	return lacks
}

func TestDriftIsOnlyReportedIfConfiguredSo(t *testing.T) {
	d := newDriftLab(t, "veth", "--audit=1s", "--drift=report")
	d.inPod(deleteAddresses)
	d.awaitDriftEvent("drift reported: linux.address/")
	d.await(func() bool { return strings.Contains(d.text("objects"), "Drifted") }, "the phase Drifted")
	if text := d.text("transactions"); !strings.Contains(text, "drift reported: linux.address/") ||
		!strings.Contains(text, "report") {
		t.Errorf("no transaction reports it:\n%s", text)
	}
	events := d.driftEvents()
	<-time.After(3 * time.Second) // each kind is audited within a second
	if again := d.driftEvents(); len(again) != len(events) {
		t.Errorf("the audit repeats its reports: %q", again)
	}
	if !d.lacksAddress() {
		t.Error("the pod has its address, although drift must not be repaired")
	}
	d.text("resync", "downstream")
	d.check(d.pod, d.result)
	d.mustReach(d.other, d.address)
}

// The dataplane does not notify the deletion of a route by another client.
func TestAuditRepairsDriftWithoutNotification(t *testing.T) {
	d := newDriftLab(t, "veth", "--audit=2s")
	prefix := ip_types.NewPrefix(net.IPNet{IP: d.address.AsSlice(), Mask: net.CIDRMask(32, 32)})
	d.inDataplane(func(conn api.Connection) error {
		rpc := ip.NewServiceClient(conn)
		tables, err := rpc.IPTableDump(d.Context(), &ip.IPTableDump{})
		for err == nil {
			var table *ip.IPTableDetails
			if table, err = tables.Recv(); err == nil { // a table without routes returns an error
				_, _ = rpc.IPRouteAddDel(d.Context(), &ip.IPRouteAddDel{
					Route: ip.IPRoute{TableID: table.Table.TableID, Prefix: prefix},
				})
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	d.awaitDriftEvent("drift repaired: vpp.route/")
	d.check(d.pod, d.result)
	d.mustReach(d.other, d.address)
}
