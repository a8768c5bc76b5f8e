package ipnet_test

import (
	"testing"
	"time"

	"github.com/weftnet/weft/pod"
)

// joined returns a node whose Node was created at that time.
func joined(n pod.Node, at time.Time) pod.Node {
	n.Created = at
	return n
}

// The kubelet of a node reports the InternalIP of another node, too. docs/security.md: it stays with that node. A node
// that starts without a state file, such as one that has just joined, must not take the name of a node for evidence.
func TestAnAddressOfTwoNodesStaysWithTheOlderOneOnANewNode(t *testing.T) {
	first := time.Unix(1_700_000_000, 0).UTC()
	for _, name := range []string{"a-thief", "z-thief"} {
		for _, isReversed := range []bool{false, true} {
			n := nodeOf(t, meshed("vxlan4", four)).run(t)
			victim := joined(other(3, "10.1.3.0/24"), first)
			thief := joined(other(4, "10.1.4.0/24"), first.Add(time.Second))
			thief.Name = name
			thief.Addresses = victim.Addresses
			nodes := []pod.Node{victim, thief}
			if isReversed {
				nodes = []pod.Node{thief, victim}
			}
			refused := n.join(t, self(), nodes...)
			if why := refused["node3"]; why != "" || refused[name] == "" {
				t.Errorf("beside %s node3 is not reached: %q; refused: %v", name, why, refused)
			}
			again := n.restarted(t)
			if refused := again.join(t, self(), nodes...); refused["node3"] != "" || refused[name] == "" {
				t.Errorf("after a restart refused: %v", refused)
			}
		}
	}
}

// The same is true for the number of a node, which its agent writes.
func TestANumberOfTwoNodesStaysWithTheOlderOneOnANewNode(t *testing.T) {
	first := time.Unix(1_700_000_000, 0).UTC()
	n := nodeOf(t, meshed("vxlan4", four)).run(t)
	thief := joined(other(4, "10.1.4.0/24"), first.Add(time.Hour))
	thief.Name = "a-thief"
	thief.ID = 3
	refused := n.join(t, self(), thief, joined(other(3, "10.1.3.0/24"), first))
	if refused["node3"] != "" || refused["a-thief"] != "its ID 3 is already used by node node3" {
		t.Errorf("refused: %v", refused)
	}
}

// Nodes of the same second are ordered by name, so that all nodes agree.
func TestAnAddressOfTwoNodesOfTheSameAgeIsOfTheFirstName(t *testing.T) {
	n := nodeOf(t, meshed("vxlan4", four)).run(t)
	late := other(4, "10.1.4.0/24")
	late.Addresses = other(3).Addresses
	if refused := n.join(t, self(), late, other(3, "10.1.3.0/24")); refused["node3"] != "" || refused["node4"] == "" {
		t.Errorf("refused: %v", refused)
	}
}
