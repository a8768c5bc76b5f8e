package memif_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
)

// A pod with a tap is replaced by one with a memif and the same addresses, on a network of type L2. A neighbour that
// knows the addresses learns the new MAC from the ADD, before a program of the new pod runs. The program connects as if
// it were the first client.
func TestNeighboursLearnTheMACOfAMemifWithoutAProgram(t *testing.T) {
	l := newLab(t, node.Options{Networks: networks()})
	neighbour, err := l.NewPod("neighbour")
	l.try(err)
	neighbour.Annotations = map[string]string{"contivpp.io/custom-if": "t1/tap/blue"}
	l.add(neighbour)
	const fixed = `{"x1":{"ips":["10.5.0.77","fd00:5::77"]}}`
	old, err := l.NewPod("old")
	l.try(err)
	old.Annotations = map[string]string{
		"contivpp.io/custom-if":         "x1/tap/blue",
		"contivpp.io/custom-if-options": fixed,
	}
	former := l.add(old)[1]
	for _, address := range former.Bare() {
		l.reachBy(neighbour, "t1", address)
		l.knows(neighbour, address, former.Mac)
	}
	l.del(old)

	d, containers := l.admit("d", "x1/memif/blue", fixed, kubelettest.Container{Name: "vnf", Limit: 1})
	present := l.add(d)[1]
	if present.Mac == former.Mac {
		t.Fatalf("both pods have the MAC %s", present.Mac)
	}
	for _, address := range present.Bare() {
		l.knows(neighbour, address, present.Mac)
	}
	responder := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(responder, "x1: connected to")
	for _, address := range present.Bare() {
		l.reachBy(neighbour, "t1", address)
	}
}

// knows waits until the link t1 of a pod has an entry for an address with a MAC.
func (l *lab) knows(p *node.Pod, address netip.Addr, mac string) {
	l.Helper()
	l.eventually(func() (err error) {
		netnstest.Do(l, p.Netns, func() { err = isKnown(address, mac) })
		return err
	})
}

// isKnown looks for a neighbour of the link t1.
func isKnown(address netip.Addr, mac string) error {
	link, err := netlink.LinkByName("t1")
	if err != nil {
		return err
	}
	entries, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, n := range entries {
		if n.IP.Equal(address.AsSlice()) && n.HardwareAddr.String() == mac {
			return nil
		}
	}
	return fmt.Errorf("%s has no entry for %s with the MAC %s: %v", link.Attrs().Name, address, mac, entries)
}
