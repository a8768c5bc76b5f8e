package agent

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// The tunnel to another node is counted under its name, and no longer once the node has left.
func TestMetricsOfTunnelsNameTheOtherNode(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{HTTP: endpointAddress})
	var own v1.NodeNetwork
	l.eventually("the node announces itself", func() bool {
		return server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && own.Spec.NodeIDConfirmed
	})
	l.metric(`weft_link_rx_packets_total{link="host"}`, atLeast(0))
	neighbour(server, "n2", own.Spec.NodeID%60000+1, "10.8.2.0/24")
	l.metric(`weft_tunnel_tx_packets_total{node="n2"}`, atLeast(0))
	a := l.pod("a")
	l.put(server, a, nil)
	l.cni("ADD", a, nil)
	netnstest.Do(t, a.Netns, func() { sendDatagrams(t, netip.MustParseAddr("10.8.2.9"), 8) })
	l.metric(`weft_tunnel_tx_packets_total{node="n2"}`, atLeast(1))
	l.metric(`weft_tunnel_tx_bytes_total{node="n2"}`, atLeast(64))
	server.Remove("nodenetworks.contivpp.io", "", "n2")
	l.eventually("the series of the node that left are gone", func() bool {
		values, err := scrape(t.Context())
		_, there := values[`weft_tunnel_tx_packets_total{node="n2"}`]
		return err == nil && !there
	})
	l.cni("DEL", a, nil)
}
