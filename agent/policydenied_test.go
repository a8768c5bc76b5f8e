package agent

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// deniedFor is how long a denied connection must be silent. Its ends send again several times meanwhile.
const deniedFor = 2 * time.Second

// A change denies two idle connections. The one on which the client sends next has ended. The one on which the server
// sends next has ended with weft-vswitch, and goes on with VPP, which forgets sessions and opens one for the server's
// packet: docs/policy.md says so.
func TestIdleConnectionThatBecomesDenied(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true})
	client := l.pod("client")
	target := l.pod("target")
	l.put(server, client, nil)
	l.put(server, target, nil)
	from := l.addresses(l.cni("ADD", client, nil))[0]
	to := l.addresses(l.cni("ADD", target, nil))[0]
	shows := func(words string) bool {
		text, err := l.Weftctl(t.Context(), "policy", "lab/target")
		return err == nil && strings.Contains(text, words)
	}
	const resource = "networkpolicies.networking.k8s.io"
	server.Put(resource, ingressFrom("permit", from))
	server.Put(resource, ingressFrom("isolate", to)) // both pods: the server's data are permitted at the client
	l.eventually("the policies are applied", func() bool {
		return shows("NetworkPolicy lab/permit") && shows("NetworkPolicy lab/isolate")
	})

	byClient := l.connected(client, target, to)
	byServer := l.connected(client, target, to)
	for _, c := range [][2]net.Conn{byClient, byServer} {
		mustPass(t, c[0], c[1])
		mustPass(t, c[1], c[0])
	}
	server.Remove(resource, "lab", "permit")
	l.eventually("the client is denied", func() bool {
		return !shows("NetworkPolicy lab/permit") && shows("NetworkPolicy lab/isolate")
	})
	if passes(t, byClient[0], byClient[1]) {
		t.Error("the client's data arrive")
	}
	goesOn := passes(t, byServer[1], byServer[0])
	if goesOn != (dataplane.Prefix() != "") {
		t.Errorf("the server's data arrive: %t", goesOn)
	}
	if goesOn {
		mustPass(t, byServer[0], byServer[1])
	}
	l.cni("DEL", client, nil)
	l.cni("DEL", target, nil)
}

// connected returns both ends of a new connection, that of the client first.
func (l *lab) connected(client, target *node.Pod, to netip.Addr) (ends [2]net.Conn) {
	l.Helper()
	var listener net.Listener
	must.Succeed(l.T, traffic.Inside(target.Netns, func() (err error) {
		listener, err = traffic.Listener("eth0").Listen(l.Context(), "tcp", netip.AddrPortFrom(to, policyPort).String())
		return err
	}))
	ends[0] = l.dialFrom(client, netip.AddrPortFrom(to, policyPort))
	var err error
	ends[1], err = listener.Accept()
	must.Succeed(l.T, errors.Join(err, listener.Close()))
	for _, c := range ends {
		l.Cleanup(func() { _ = c.Close() })
	}
	return ends
}

// mustPass expects that data pass from one end to the other.
func mustPass(t *testing.T, from, to net.Conn) {
	t.Helper()
	if !passes(t, from, to) {
		t.Fatalf("no data from %s to %s", from.LocalAddr(), to.LocalAddr())
	}
}

// passes sends data and reports whether they arrive within deniedFor.
func passes(t *testing.T, from, to net.Conn) bool {
	t.Helper()
	sent := []byte("sent by " + from.LocalAddr().String())
	_, err := from.Write(sent)
	must.Succeed(t, errors.Join(err, to.SetReadDeadline(time.Now().Add(deniedFor))))
	got := make([]byte, len(sent))
	_, err = io.ReadFull(to, got)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	must.Succeed(t, err)
	return string(got) == string(sent)
}
