package podmanager

import (
	"encoding/json"
	"testing"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// FuzzRestore restores any attachment of a state file. A repeated ADD and a CHECK of it are answered, and a DEL removes it.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"key":{"network":"weft","containerID":"c1","ifName":"eth0"},"netns":{"path":"/run/netns/a","inode":11,"device":4},
		"interfaces":[{"name":"eth0","type":"tap","addresses":["10.1.0.3/32"],"gateways":["169.254.1.1",""],"routes":[{"destination":"0.0.0.0/0"}]},
		{"name":"m1","type":"memif","memif":{"ringSize":-1}}],"delegation":{"routes":[{"destination":"10.0.0.0/8"}]}}`))
	f.Add([]byte(`{"interfaces":[{"type":"memif","hostLink":"x"}],"awaitsAddresses":true}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a pod.Attachment
		if json.Unmarshal(raw, &a) != nil {
			return
		}
		a.Key = keyOfContainer("c1")
		n := newNodeWith(t, &a)
		if _, err := n.Add(t.Context(), addOf("c1", "/run/netns/a")); err != nil {
			t.Error(err)
		}
		if _, err := n.Check(t.Context(), &weftv1.CheckRequest{Caller: caller(), Attachment: attachment("c1"), Netns: "/run/netns/a"}); err != nil {
			t.Error(err)
		}
		if err := n.del(t, "c1"); err != nil {
			t.Error(err)
		}
		n.want(t)
	})
}
