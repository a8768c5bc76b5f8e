package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

const (
	policyChanges = 1000
	// policyBatch is the number of changes after which the test waits until the agent has applied the last one.
	policyBatch   = 50
	policyStreams = 8
	policyPort    = 5001
)

// stream is a TCP connection with a number in flight that the server sends back.
type stream struct {
	conn   net.Conn
	echoes atomic.Int64
	last   atomic.Int64 // time of the last echo, Unix nanoseconds
	ended  error        // set before running.Wait returns
}

// run sends numbers until the connection ends or an echo is wrong.
func (s *stream) run() {
	sent := make([]byte, 1024)
	back := make([]byte, 1024)
	for n := uint64(1); s.ended == nil; n++ {
		binary.BigEndian.PutUint64(sent, n)
		_, err := s.conn.Write(sent)
		if err == nil {
			_, err = io.ReadFull(s.conn, back)
		}
		if err == nil && !bytes.Equal(sent, back) {
			err = fmt.Errorf("echo %d differs", n)
		}
		s.ended = err
		s.echoes.Store(int64(n))
		s.last.Store(time.Now().UnixNano())
	}
}

// ingressFrom is a policy that permits ingress to all pods of the namespace from addresses.
func ingressFrom(name string, addresses ...netip.Addr) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}},
	}
	for _, a := range addresses {
		block := &networkingv1.IPBlock{CIDR: netaddr.Single(a).String()}
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From: []networkingv1.NetworkPolicyPeer{{IPBlock: block}},
		})
	}
	return p
}

// Connections that stay permitted survive a thousand changes of policies. Those that become denied stop; not with VPP,
// where the echoes in flight open sessions: TestIdleConnectionThatBecomesDenied.
func TestPolicyChangesKeepPermittedConnections(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true})
	client := l.pod("client")
	target := l.pod("target")
	l.put(server, client, nil)
	l.put(server, target, nil)
	from := l.addresses(l.cni("ADD", client, nil))[0]
	to := l.addresses(l.cni("ADD", target, nil))[0]
	shows := func(words string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), "policy", "lab/target")
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), words)
		}
	}
	const resource = "networkpolicies.networking.k8s.io"
	server.Put(resource, ingressFrom("permit", from))
	l.eventually("the client is permitted", shows("NetworkPolicy lab/permit"))

	stop := l.echoIn(target, to)
	var running sync.WaitGroup
	streams := make([]*stream, policyStreams)
	for i := range streams {
		streams[i] = &stream{conn: l.dialFrom(client, netip.AddrPortFrom(to, policyPort))}
		running.Go(streams[i].run)
	}
	for i := 1; i <= policyChanges; i++ {
		other := netip.AddrFrom4([4]byte{192, 0, byte(2 + i/250), byte(1 + i%250)})
		server.Put(resource, ingressFrom("changed", other))
		if i%policyBatch == 0 {
			l.eventually("a change is applied", shows(other.String()+"/32"))
		}
	}
	for i, s := range streams {
		before := s.echoes.Load()
		l.eventually(fmt.Sprintf("connection %d goes on", i), func() bool { return s.echoes.Load() > before+10 })
	}

	denied := time.Now()
	server.Remove(resource, "lab", "permit")
	l.eventually("the client is denied", func() bool { return !shows("NetworkPolicy lab/permit")() })
	for i, s := range streams {
		if dataplane.Prefix() == "" {
			l.eventually(fmt.Sprintf("connection %d stops", i), func() bool {
				return time.Since(time.Unix(0, s.last.Load())) > deniedFor
			})
		}
		t.Logf("connection %d: %d echoes, the last one %s after the change that denies it", i, s.echoes.Load(),
			time.Unix(0, s.last.Load()).Sub(denied).Round(time.Millisecond))
		must.Succeed(t, s.conn.Close())
	}
	running.Wait()
	for i, s := range streams {
		if !errors.Is(s.ended, net.ErrClosed) {
			t.Errorf("connection %d ended by itself: %v", i, s.ended)
		}
	}
	stop()
	l.cni("DEL", client, nil)
	l.cni("DEL", target, nil)
}

// echoIn serves TCP echo on policyPort in a pod until stop, which also ends connections whose client cannot be reached.
func (l *lab) echoIn(p *node.Pod, at netip.Addr) (stop func()) {
	l.Helper()
	var listener net.Listener
	must.Succeed(l.T, traffic.Inside(p.Netns, func() (err error) {
		listener, err = traffic.Listener("eth0").Listen(l.Context(), "tcp", netip.AddrPortFrom(at, policyPort).String())
		return err
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			serving.Go(func() {
				_, _ = io.Copy(conn, conn) // the client notices a missing echo
				end()
				_ = conn.Close()
			})
		}
	})
	return func() {
		cancel()
		must.Succeed(l.T, listener.Close())
		serving.Wait()
	}
}

// dialFrom connects from a pod.
func (l *lab) dialFrom(p *node.Pod, to netip.AddrPort) (conn net.Conn) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	must.Succeed(l.T, traffic.Inside(p.Netns, func() (err error) {
		conn, err = traffic.Dialer("eth0").DialContext(ctx, "tcp", to.String())
		return err
	}))
	return conn
}
