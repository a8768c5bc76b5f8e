package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// proxyPatience is how long a kube-proxy may take to hear of a service.
const proxyPatience = 15 * time.Second

// errUnknown is the fault of a kube-proxy that drops what is sent to a service as if there were none.
var errUnknown = errors.New("kube-proxy does not know the service")

// awaitProxies waits until the kube-proxy of each node knows a service. Now and then one never does, when the API server was
// away some time before (kube-proxy 1.36, nftables): then it drops what the node itself sends to the service too, before the
// kernel keeps a connection of it. Such a one is started again, and the test says so; whatever else is wrong is left to the test.
func (s *space) awaitProxies(service *corev1.Service) {
	s.t.Helper()
	for _, n := range s.c.Nodes {
		for _, ip := range service.Spec.ClusterIPs {
			at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(service.Spec.Ports[0].Port))
			ctx, cancel := context.WithTimeout(s.t.Context(), proxyPatience)
			err := cluster.Eventually(ctx, n.Name+" knows "+at.String(), func(ctx context.Context) error { return isKnown(ctx, n, at) })
			cancel()
			if errors.Is(err, errUnknown) {
				s.t.Logf("%v: it is started again", err)
				s.must(errors.Join(n.Proxy.Kill(), n.Proxy.Start()))
			}
		}
	}
}

// isKnown sends something to a service from a node, whose kernel keeps a connection of it unless kube-proxy drops it.
func isKnown(ctx context.Context, n *cluster.Node, at netip.AddrPort) error {
	attempt, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := n.Dial(attempt, "tcp", at.String())
	if err == nil {
		return conn.Close()
	}
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return fmt.Errorf("dial: %w", err) // it is refused: there are no endpoints yet
	}
	family := netlink.InetFamily(netlink.FAMILY_V6)
	if at.Addr().Is4() {
		family = netlink.FAMILY_V4
	}
	return n.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		if slices.ContainsFunc(flows, func(f *netlink.ConntrackFlow) bool {
			return f.Forward.DstIP.String() == at.Addr().String() && f.Forward.DstPort == at.Port()
		}) {
			return nil // it went on its way
		}
		return fmt.Errorf("%w %s on %s", errUnknown, at, n.Name)
	})
}
