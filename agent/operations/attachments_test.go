package operations

import (
	"log/slog"
	"testing"
	"time"

	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// A runtime may request a new sandbox before it deletes the old one.
func TestPeerOnADirectNetworkIsTheNewestSandbox(t *testing.T) {
	member := func(container, role, name string, created int64) *pod.Attachment {
		return &pod.Attachment{
			Key: pod.Key{Network: "weft", ContainerID: container, IfName: "eth0"}, Created: time.Unix(created, 0),
			Pod: pod.ID{Namespace: "lab", Name: role},
			Interfaces: []pod.Interface{
				{Name: name, Type: pod.TypeMemif, Network: "pair", Memif: &pod.Memif{ID: 1, Role: role}},
			},
		}
	}
	client := member("a", pod.RoleClient, "m1", 1)
	for _, created := range [][2]int64{{2, 3}, {3, 2}} {
		pods := podmanager.New(podmanager.Config{})
		pods.Restore([]*pod.Attachment{
			client, member("b", pod.RoleServer, "first", created[0]), member("c", pod.RoleServer, "second", created[1]),
		})
		connected, err := attach.New(attach.Config{}, attach.Node{})
		if err != nil {
			t.Fatal(err)
		}
		o := &attachments{
			pods:    pods,
			network: &ipnet.Network{Pods: connected},
			splices: splice.New(slog.New(slog.DiscardHandler)),
		}
		want := "not connected yet, second of pod lab/server"
		if created[0] > created[1] {
			want = "not connected yet, first of pod lab/server"
		}
		if got := o.peerOf(client, client.Interfaces[0]); got != want {
			t.Errorf("sandboxes created at %v: got %q, want %q", created, got, want)
		}
	}
}
