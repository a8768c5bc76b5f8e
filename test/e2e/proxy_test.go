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

// errUnknown is the fault of a kube-proxy that drops what is sent to a service as if there were none.
var errUnknown = errors.New("kube-proxy does not know the service")

// reached is the error of who did not reach a service, and whether the kube-proxy of each node knows that: one that does not drops
// what the node itself sends to it too, before the kernel keeps a connection of it.
func (s *space) reached(service *corev1.Service, err error) error {
	if err == nil {
		return nil
	}
	for _, n := range s.c.Nodes {
		for _, ip := range service.Spec.ClusterIPs {
			at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(service.Spec.Ports[0].Port))
			err = errors.Join(err, isKnown(s.t.Context(), n, at))
		}
	}
	return err
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
