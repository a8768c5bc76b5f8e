package agent

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// manyAddresses are more than the agent reads.
const manyAddresses = 5000

// changeAddresses calls change for many addresses on the link of a pod.
func (l *lab) changeAddresses(p *node.Pod, change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			l.Fatal(err)
		}
		h, err := netlink.NewHandle()
		if err != nil {
			l.Fatal(err)
		}
		defer h.Close()
		for n := range manyAddresses {
			ip := &net.IPNet{IP: binary.BigEndian.AppendUint32(nil, 0xac100000+uint32(n)), Mask: net.CIDRMask(32, 32)}
			if err := change(h, link, &netlink.Addr{IPNet: ip}); err != nil {
				l.Fatal(err)
			}
		}
	})
}

// notChecked returns the message of the condition namespaces; "" if it holds.
func (l *lab) notChecked() string {
	l.Helper()
	var status struct {
		Conditions []struct {
			Name, Message string
			Ok            bool
		}
	}
	l.ctl(&status, "status")
	for _, c := range status.Conditions {
		if c.Name == "namespaces" && !c.Ok {
			return c.Message
		}
	}
	return ""
}

// state returns the state of a pod in weftctl pod, with the cause.
func (l *lab) state(p *node.Pod) string {
	l.Helper()
	var story struct{ State, Cause string }
	l.ctl(&story, "pod", "lab/"+p.Name)
	return strings.TrimSpace(story.State + " " + story.Cause)
}

// A program with NET_ADMIN adds thousands of addresses. Operators see which pod is not checked, until it is again, or
// is deleted.
func TestAPodThatFillsItsNamespaceIsReportedAloneUntilItIsReadAgain(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	if err := errors.Join(l.StopAgent(), l.StartAgent(t.Context(), "--audit=1s")); err != nil {
		t.Fatal(err)
	}
	a := l.pod("a")
	b := l.pod("b")
	for _, p := range []*node.Pod{a, b} {
		l.put(server, p, nil)
		l.cni("ADD", p, nil)
	}
	fill := func() {
		t.Helper()
		l.changeAddresses(a, func(h *netlink.Handle, l netlink.Link, addr *netlink.Addr) error {
			return h.AddrAdd(l, addr)
		})
		l.eventually("the condition names the pod", func() bool {
			return strings.Contains(l.notChecked(), "pod lab/a")
		})
	}
	fill()
	if message := l.notChecked(); strings.Contains(message, "lab/b") {
		t.Errorf("the condition names another pod: %s", message)
	}
	if state := l.state(a); !strings.HasPrefix(state,
		"degraded objects in the pod are neither checked nor repaired: linux.address: more objects") {
		t.Errorf("weftctl pod lab/a: %s", state)
	}
	if state := l.state(b); state != "running" {
		t.Errorf("weftctl pod lab/b: %s", state)
	}
	l.eventually("an Event on the pod has the reason", func() bool {
		for _, e := range eventsOf(t, server) {
			if e.Type == corev1.EventTypeWarning && e.Reason == "WeftNotChecked" && e.InvolvedObject.Name == "a" {
				return strings.Contains(e.Message, "more than 4096")
			}
		}
		return false
	})
	l.changeAddresses(a, func(h *netlink.Handle, l netlink.Link, addr *netlink.Addr) error {
		return h.AddrDel(l, addr)
	})
	l.eventually("the condition holds when the objects are read again", func() bool { return l.notChecked() == "" })
	if state := l.state(a); state != "running" {
		t.Errorf("weftctl pod lab/a: %s", state)
	}
	fill()
	l.cni("DEL", a, nil)
	l.eventually("the condition holds when the pod is deleted", func() bool { return l.notChecked() == "" })
	l.cni("DEL", b, nil)
}
