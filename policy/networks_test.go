package policy

import (
	"fmt"
	"testing"
)

// The annotation policy-for of a MultiNetworkPolicy has thousands of names. Each peer's networks are looked up among
// them.
func TestPolicyForManyNetworks(t *testing.T) {
	e := NewEngine(Config{})
	for _, name := range []string{"evil/p", "evil/q"} {
		p := podAt(name, true, "10.66.0.1", "app="+name[5:])
		p.Interfaces[0].Networks = []string{"main"}
		for n, network := range []string{"named", "another"} {
			p.Interfaces = append(p.Interfaces, Interface{
				Name:      fmt.Sprint("net", n),
				Networks:  []string{network},
				Addresses: p.Interfaces[0].Addresses,
			})
		}
		e.SetPod(p)
	}
	for _, tt := range []struct {
		names int
		want  string // nets with a list, what net0 decides
	}{{2048, "[eth0:false net0:true net1:false] allow"}, {3, "[eth0:false net0:true net1:false] allow"}} {
		p := networkPolicy(t, "evil/p",
			`{podSelector: {matchLabels: {app: p}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}`)
		p.Kind = Multi
		p.Networks = []string{"named", "main"}
		for n := 1; n < tt.names; n++ {
			p.Networks = append(p.Networks, fmt.Sprintf("a%04d", n))
		}
		e.SetPolicy(p)
		e.Compile()
		lists := e.Lists()[ID{"evil", "p"}]
		is := func(nic string) string { return fmt.Sprintf("%s:%t", nic, lists[nic] != Lists{}) }
		action := lists["net0"][Ingress].Decide(address("10.66.0.1"), TCP, 80).Action
		if got := fmt.Sprint([]string{is("eth0"), is("net0"), is("net1")}, " ", action); got != tt.want {
			t.Errorf("%d networks: %s, want %s", tt.names, got, tt.want)
		}
		if len(e.Lists()[ID{"evil", "q"}]) != 0 {
			t.Errorf("%d networks: a pod that is no subject has rules", tt.names)
		}
	}
	e.DeletePolicy(Ref{Multi, "evil", "p"})
	e.Compile()
	if lists := e.Lists(); len(lists) != 0 {
		t.Errorf("without the policy: %v", lists)
	}
}
