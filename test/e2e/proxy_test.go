package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// errUnknown means that a kube-proxy drops packets to a Service without error.
var errUnknown = errors.New("kube-proxy does not know the service")

// reached wraps the error of a client of a Service with the state of each node's kube-proxy: one that does not know the
// Service drops the node's own packets too, and the kernel has no connection then.
func (s *space) reached(service *corev1.Service, err error) error {
	if err == nil {
		return nil
	}
	for _, n := range s.c.Nodes {
		for _, ip := range service.Spec.ClusterIPs {
			at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(service.Spec.Ports[0].Port))
			known := isKnown(s.t.Context(), n, at)
			if errors.Is(known, errUnknown) {
				s.describeProxy(n, ip)
			}
			err = errors.Join(err, known)
		}
	}
	return err
}

// isKnown sends a packet from a node to a Service; the node's kernel has a connection then, unless kube-proxy drops the
// packet.
func isKnown(ctx context.Context, n *cluster.Node, at netip.AddrPort) error {
	attempt, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := n.Dial(attempt, "tcp", at.String())
	if err == nil {
		return conn.Close()
	}
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return fmt.Errorf("dial: %w", err) // refused: no endpoints yet
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
			return nil // forwarded
		}
		return fmt.Errorf("%w %s on %s", errUnknown, at, n.Name)
	})
}

// describeProxy logs the rules of a node's kube-proxy for a Service, and its metrics.
func (s *space) describeProxy(n *cluster.Node, ip string) {
	family := "ip6"
	if netip.MustParseAddr(ip).Is4() {
		family = "ip"
	}
	for _, list := range [][]string{
		{"map", family, "kube-proxy", "service-ips"}, {"set", family, "kube-proxy", "cluster-ips"},
	} {
		out, err := n.Run(s.t.Context(), s.c.Programs().Path("nft"), append([]string{"list"}, list...)...)
		s.t.Logf("%s: nft list %s: %v\n%s", n.Name, strings.Join(list, " "), err, out)
	}
	metrics, err := fetchFrom(s.t.Context(), n, "http://127.0.0.1:10249/metrics")
	if err != nil {
		s.t.Logf("%s: metrics of kube-proxy: %v", n.Name, err)
	}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "kubeproxy_sync_") && !strings.Contains(line, "_bucket") {
			s.t.Logf("%s: %s", n.Name, strings.TrimSpace(line))
		}
	}
}
