package ipnet_test

import (
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestAReplicaHasTheMACOfItsClaimThatWasMadeAgain(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/28"))
	add := func(uid string) pod.Interface {
		ev := asking("db-0", "t1/tap/blue", `{"t1": {"persistentIPs": true}}`)
		claim := pod.IPAMClaim{
			Namespace: ev.ID.Namespace, Name: ev.ID.Name + ".t1", UID: uid, Network: "blue", Interface: "t1",
			Seed: "set",
		}
		ev.IPAMClaims = map[string]pod.IPAMClaim{claim.Name: claim}
		i := n.add(t, ev).Interfaces[1]
		n.delete(t, ev)
		if i.IPAMClaim != claim.Name {
			t.Errorf("the interface is %+v", i)
		}
		return i
	}
	was := add("u")
	if is := add("v"); is.MAC != was.MAC || is.MAC.IsZero() {
		t.Errorf("the MAC was %s and is %s", was.MAC, is.MAC)
	}
}
