package ipnet_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

// podOf returns an ADD of a pod, with a static address unless it is "".
func podOf(namespace, name, uid, address string) *pod.AddPod {
	ev := sandbox(uid)
	ev.ID = pod.ID{Namespace: namespace, Name: name, UID: uid}
	if address != "" {
		ev.Annotations = map[string]string{pod.AnnotationIPs: `["` + address + `"]`}
	}
	return ev
}

// EndpointSlices, ipBlocks and clients refer to the address of a pod for some seconds after its end: that is what the
// cool-down is for. A pod of another namespace must not have it meanwhile by asking for it.
func TestAPodOfAnotherNamespaceDoesNotGetAnAddressThatCoolsDown(t *testing.T) {
	const message = "address 10.2.0.2 was released by a pod of another namespace and cools down for 30s; try again then, or request another one or none"
	n := newNode(t, netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.2.0.0/24")}).run(t)
	victim := podOf("bank", "db-0", "1", "")
	address := mainAddress(n.add(t, victim))
	n.delete(t, victim)
	thief := podOf("evil", "db-0", "2", address)
	checkRefusal(t, n.refuses(t, thief), pod.CodeTryAgain, message)
	n = n.restarted(t)
	checkRefusal(t, n.refuses(t, thief), pod.CodeTryAgain, message)
	free := n.add(t, podOf("evil", "free", "3", ""))
	if mainAddress(free) == address {
		t.Error("a pod that asks for none gets it")
	}
	next := podOf("bank", "db-0", "4", address)
	if got := mainAddress(n.add(t, next)); got != address {
		t.Errorf("the next pod of the name has %s", got)
	}
	n = n.restarted(t) // while the address is in use
	n.delete(t, next)
	checkRefusal(t, n.refuses(t, thief), pod.CodeTryAgain, message)
	if got := mainAddress(n.add(t, podOf("bank", "other", "5", address))); got != address {
		t.Errorf("another pod of the namespace has %s", got)
	}
	n.delete(t, podOf("bank", "other", "5", address))
	n.now = n.now.Add(coolDown)
	if got := mainAddress(n.add(t, thief)); got != address {
		t.Errorf("after the cool-down the pod of another namespace has %s", got)
	}
	n.delete(t, thief)
	checkRefusal(t, n.refuses(t, podOf("bank", "db-0", "6", address)), pod.CodeTryAgain, message)
}

// The state file of an earlier version has no namespaces of leases.
func TestTheNamespaceOfALeaseOfAnEarlierVersionIsThatOfItsAttachment(t *testing.T) {
	n := newNode(t, netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.2.0.0/24")}).run(t)
	n.add(t, podOf("bank", "db-0", "1", ""))
	saved := n.kept()
	for i := range saved.Leases {
		saved.Leases[i].Namespace = ""
	}
	again := newNode(t, netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.2.0.0/24")})
	again.Restore(saved)
	again.run(t)
	again.delete(t, podOf("bank", "db-0", "1", ""))
	if err := again.refuses(t, podOf("evil", "p", "2", "10.2.0.2")); err == nil {
		t.Error("a pod of another namespace has the address")
	}
}
