package ipnet_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/pod"
)

// withClaim refers to a claim by the options of interface t1.
func withClaim(name string, c pod.IPAMClaim) *pod.AddPod {
	ev := asking(name, "t1/tap/blue", `{"t1": {"ipamClaim": "db-0"}}`)
	ev.IPAMClaims = map[string]pod.IPAMClaim{"db-0": c}
	return ev
}

func TestAnIPAMClaimHoldsAddresses(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/28"))
	claim := pod.IPAMClaim{Namespace: "default", Name: "db-0", UID: "u", Network: "blue", Interface: "t1"}
	first := withClaim("first", claim)
	was := n.add(t, first).Interfaces[1]
	n.delete(t, first)
	claim.Addresses = []netip.Addr{was.Addresses[0].Addr()}
	n.Networks.HoldFor([]pod.IPAMClaim{claim})
	ips := `{"t1": {"ips": ["` + claim.Addresses[0].String() + `"]}}`
	other := asking("other", "t1/tap/blue", ips)
	const refusal = "belongs to IPAMClaim default/db-0, which holds it for its pods"
	checkRefusal(t, n.refuses(t, other), pod.CodeAddressInUse, refusal)
	foreign := claim
	foreign.Namespace = "evil"
	shut := custom("blue", pod.L2, "10.5.0.0/28")
	shut.Namespaces = []string{"default"}
	n.set(t, shut)
	n.Networks.HoldFor([]pod.IPAMClaim{foreign})
	n.add(t, other) // the network does not admit the namespace of the claim
	n.delete(t, other)
	n.Networks.HoldFor([]pod.IPAMClaim{claim})
	n.set(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/28"))
	checkRefusal(t, n.refuses(t, other), pod.CodeAddressInUse, refusal)
	if _, err := n.loop.Plan(t.Context(), &pod.SetNetworks{From: "test"}); err != nil { // a plan is undone
		t.Fatal(err)
	}
	checkRefusal(t, n.refuses(t, other), pod.CodeAddressInUse, refusal)
	is := n.add(t, withClaim("second", claim)).Interfaces[1]
	if is.Addresses[0] != was.Addresses[0] || is.MAC != was.MAC || is.IPAMClaim != "db-0" {
		t.Errorf("the next pod has %+v, the first one had %+v", is, was)
	}
	for _, tt := range []struct {
		change func(*pod.IPAMClaim)
		want   string
	}{
		{func(c *pod.IPAMClaim) { c.Interface = "t2" }, "IPAMClaim default/db-0 is for interface t2"},
		{func(c *pod.IPAMClaim) { c.Network = "red" }, "IPAMClaim default/db-0 is for network red, not for blue"},
	} {
		wrong := claim
		tt.change(&wrong)
		checkRefusal(t, n.refuses(t, withClaim("third", wrong)), pod.CodeInvalidAnnotation, tt.want)
	}
	contradiction := withClaim("third", claim)
	contradiction.Annotations[pod.AnnotationOptions] = `{"t1": {"ipamClaim": "db-0", "ips": ["10.5.0.9"]}}`
	checkRefusal(t, n.refuses(t, contradiction), pod.CodeInvalidAnnotation,
		"IPAMClaim default/db-0 holds ["+claim.Addresses[0].String()+"], not 10.5.0.9; remove ips, or the claim")
	alone := withClaim("third", claim)
	alone.IPAMClaims = nil
	checkRefusal(t, n.refuses(t, alone), pod.CodeInvalidAnnotation, "only pods of a cluster have IPAMClaims")
}
