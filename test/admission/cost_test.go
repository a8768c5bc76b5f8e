package admission_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// largest is an announcement of the blocks of 40,000 pods with blocks of 64: 256 of the default network, and 4 of each
// of 100 networks.
func largest(t testing.TB) string {
	t.Helper()
	networks := []string{
		fmt.Sprintf(`{name: default, cidrs: ["%s"]}`, strings.Join(many(256, "10.%d.%d.0/24"), `", "`)),
	}
	for i := range 100 {
		networks = append(networks,
			fmt.Sprintf(`{name: n%d, cidrs: [10.9.0.0/26, 10.9.1.0/26, "fd00:9::/122", "fd00:9::40/122"]}`, i))
	}
	return fmt.Sprintf(`{%s, spec: {nodeID: 2, addresses: [192.0.2.2, "2001:db8::2"], networks: [%s]}}`, owned,
		strings.Join(networks, ", "))
}

// The API server denies every request of an expression above its cost limit.
func TestLargestAnnouncementIsWithinTheCostLimit(t *testing.T) {
	s := serve(t, read(t), cluster(t)...)
	r := request{
		node:      "n2",
		operation: create,
		resource:  "nodenetworks",
		object:    object(t, "nodenetworks", "n2", largest(t)),
	}
	if why := s.ask(t, r); why != "" {
		t.Error(why)
	}
}

// BenchmarkAnnouncement measures the API server's cost of one write of a NodeNetwork, by the number of nodes.
func BenchmarkAnnouncement(b *testing.B) {
	for _, nodes := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			parameters := cluster(b)
			for i := len(parameters); i < nodes; i++ {
				parameters = append(parameters, &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)},
					Status: corev1.NodeStatus{
						Addresses: []corev1.NodeAddress{
							{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i/256, i%256)},
						},
					},
				})
			}
			s, r := serve(b, read(b), parameters...), announces(b, "default", "10.244.2.0/24", "10.9.2.0/26")
			for b.Loop() {
				if why := s.ask(b, r); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}
