package announcement_test

import (
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// BenchmarkCluster measures a change in a cluster of 1000 nodes with 5 blocks each.
func BenchmarkCluster(b *testing.B) {
	pool := blocks.PoolCIDR{Name: "pods", Prefix: prefix("10.0.0.0/8"), Bits: 26}
	c := announcement.Cluster{Nodes: make(map[string]announcement.Node), Pools: []blocks.PoolCIDR{pool}}
	var announced []*v1.NodeNetwork
	for i := range 1000 {
		name := fmt.Sprint("n", i)
		address := netip.AddrFrom4([4]byte{192, 168, byte(i / 256), byte(i)})
		c.Nodes[name] = announcement.Node{Addresses: []netip.Addr{address}}
		part := v1.NodePart{Name: "default"}
		for j := range 5 {
			cidr := pool.Block(uint64(5*i + j)).String()
			c.Blocks = append(c.Blocks, block("pods", cidr, name, nil))
			part.CIDRs = append(part.CIDRs, v1.CIDR(cidr))
		}
		announced = append(announced, &v1.NodeNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.NodeNetworkSpec{
				NodeID:          int32(i + 1),
				NodeIDConfirmed: true,
				Addresses:       []v1.IP{v1.IP(address.String())},
				Networks:        []v1.NodePart{part},
			},
		})
	}
	for b.Loop() {
		c.Former = c.Former.Learn(c)
		v := announcement.NewValidator(c)
		for _, n := range announced {
			if _, rejected := v.Accept(n); len(rejected) > 0 {
				b.Fatal(rejected)
			}
		}
	}
}
