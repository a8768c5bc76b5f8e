package podmanager

import (
	"testing"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// TestReleasesNextToEachOtherWorkTogether: a plugin of the release before or after wires pods and, above all, deletes them.
//
// rows: AWS-28
func TestReleasesNextToEachOtherWorkTogether(t *testing.T) {
	const ours = weftv1.Protocol
	for protocol := range uint32(ours + 3) {
		served := protocol > 0 && protocol+1 >= ours && protocol <= ours+1
		n := newNode(t)
		add := addOf("c1", "/run/netns/a")
		add.Caller.Protocol = protocol
		if !served {
			wantError(t, n.refusedAdd(t, add), 107, "install the plugin of the agent's release")
			n.add(t, "c1", "/run/netns/a")
		} else if reply, err := n.Add(t.Context(), add); err != nil || reply.GetError() != nil {
			t.Errorf("ADD of protocol %d: %v, %v", protocol, reply.GetError(), err)
		}
		reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: add.Caller, Attachment: attachment("c1")})
		if err != nil || (reply.GetError() == nil) != served {
			t.Errorf("DEL of protocol %d: %v, %v", protocol, reply.GetError(), err)
		}
	}
}
