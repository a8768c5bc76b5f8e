package ipnet_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// queuesOf returns the desired queues of pods' links: of each dataplane end, and of each veth.
func queuesOf(n *node) (queues []string) {
	values := n.committer.Values()
	for key, value := range values {
		switch v := value.(type) {
		case wire.Interface:
			if v.Tap.Namespace != "" {
				queues = append(queues, fmt.Sprintf("%s: %d", v.Tap.Name, v.Tap.Queues))
			}
		case wire.Veth:
			on := values[wire.InterfaceKey(strings.TrimPrefix(key, wire.VethKey("")))].(wire.Interface).AFPacket
			queues = append(queues,
				fmt.Sprintf("%s: %d/%d, %d/%d", v.Name, v.RxQueues, v.TxQueues, on.RxQueues, on.TxQueues))
		}
	}
	slices.Sort(queues)
	return queues
}

// RX and TX are swapped at the dataplane's end of a veth. Existing interfaces keep their queues when the node's default
// changes.
func TestLinksHaveTheRequestedOrDefaultQueues(t *testing.T) {
	const options = `{"t1":{"rxQueues":2,"txQueues":2},"t2":{"txQueues":4},"v1":{"rxQueues":2,"txQueues":4},"v2":{"rxQueues":1}}`
	for given, want := range map[int][]string{
		1: {"eth0: 0", "t0: 0", "t1: 2", "t2: 4", "v1: 2/4, 4/2", "v2: 0/0, 0/0"},
		3: {"eth0: 3", "t0: 3", "t1: 2", "t2: 4", "v1: 2/4, 4/2", "v2: 0/3, 3/0"},
	} {
		n := nodeOf(t, ipnet.Config{
			Networks: networks.Config{Pools: []netaddr.Pool{four}},
			Pods:     attach.Config{PodQueues: given},
		}).run(t)
		a := n.add(t, asking("a", "t0/tap,t1/tap,t2/tap,v1/veth,v2/veth", options))
		if got := queuesOf(n); !slices.Equal(got, want) {
			t.Errorf("with default %d: %v, want %v", given, got, want)
		}
		n.config.Pods.PodQueues = 4
		n = n.restarted(t)
		if got := queuesOf(n); !slices.Equal(got, want) {
			t.Errorf("after a restart: %v, want %v", got, want)
		}
		fresh := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}})
		again, err := reconstruct(fresh,
			foundOf(t, n, &pod.Attachment{Key: a.Key, Netns: a.Netns, Interfaces: a.Interfaces[:1]}))
		if err != nil || !reflect.DeepEqual(again.Interfaces, a.Interfaces[:1]) {
			t.Errorf("reconstructed %+v, %v; want %+v", again, err, a.Interfaces[:1])
		}
	}
}
