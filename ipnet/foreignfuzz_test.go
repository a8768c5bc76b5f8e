package ipnet_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// FuzzFoundMemif reads interfaces.json from a directory that a container may be able to write.
func FuzzFoundMemif(f *testing.F) {
	allocation := pod.Allocation{
		ID:         "a",
		Attachment: pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"},
		Directory:  "/run/weft/memif/a",
	}
	object := desired.ObjectName(allocation.Attachment, "m1")
	f.Add([]byte(
		`{"version":1,"interfaces":[{"name":"m1","id":1,"mode":"ip","mac":"02:00:00:00:00:01","mtu":1400,"addresses":["10.1.0.3/32","fd00::3/128"],"ringSize":1024,"rxQueues":1}]}`))
	f.Add([]byte(`{"interfaces":[{"name":"m1","mac":"02:00:00:00:00:01","mtu":1400,"addresses":["","10.1.0.3/33"]}]}`))
	f.Add([]byte(`{"interfaces":[{"name":"m1","mac":"02:00:00:00:00:01","mtu":-1,"addresses":[""]},null]}`))
	f.Fuzz(func(t *testing.T, list []byte) {
		n := newNode(t, four, six)
		found, err := attach.FoundMemif(object, allocation, list)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		attachments, refused := n.Pods.Reconstruct([]attach.Found{found}, nil)
		if len(attachments)+len(refused) != 1 {
			t.Fatalf("%d attachments, refused %v", len(attachments), refused)
		}
		for _, a := range attachments {
			for _, p := range a.Interfaces[0].Addresses {
				if !p.IsValid() || !p.IsSingleIP() {
					t.Errorf("address %[2]v of the pod from %[1]s", list, p)
				}
			}
		}
		n.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: attachments}})
	})
}

// FuzzVethObject parses the alias of a link, which a pod may have set.
func FuzzVethObject(f *testing.F) {
	f.Add("wx", "weft:weft/c1/eth0/m1")
	f.Add("wx", "weft:weft//eth0")
	f.Add("wx", "weft:sha256:00")
	f.Fuzz(func(t *testing.T, host, alias string) {
		object, ifName, ok := desired.VethObject(host, alias, netaddr.MAC{})
		if ok && (object == "" || ifName == "" || strings.Contains(ifName, "/") || len(host) > 15) {
			t.Errorf("%q of link %q is interface %q of %q", alias, host, ifName, object)
		}
	})
}

// FuzzRestore restores a network from any JSON in the state file. Addresses of restored attachments are not allocated
// to another pod.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(
		`{"Attachments":[{"key":{"network":"weft","containerID":"c1","ifName":"eth0"},"interfaces":[{"name":"eth0","type":"tap","addresses":["10.1.0.3/32"],"mac":"02:00:00:00:00:01"}]}],
		"Leases":[{"address":"10.1.0.4","pool":"default4","holder":"x"}],"Networks":[{"network":{"name":"blue","type":"L2","cidrs":["10.7.0.0/24"]},"table":7,"bd":8,"vni":9}],
		"Nodes":[{"node":{"name":"n2","id":2}},{"node":{},"self":true}],"Externals":[{"name":"x","network":"blue"}],"Blocks":[{"block":{"prefix":"10.8.0.0/26"}}],"Pools":{"pools":[{}]}}`))
	f.Add([]byte(`{"Leases":[{"address":""}],"Blocks":[{}],"Networks":[{}],"Externals":[{}],"Nodes":[{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var saved ipnet.Saved
		if json.Unmarshal(raw, &saved) != nil {
			return
		}
		for _, a := range saved.Attachments {
			if a == nil {
				return // the agent skips null entries
			}
		}
		n := newNode(t, []netaddr.Pool{four, six}...)
		n.Restore(saved)
		n.Restore(saved)
	})
}
