package pod

import (
	"strings"
	"testing"
)

func TestElementOfAnInterfaceThatMultusAdds(t *testing.T) {
	const limit = `"bandwidth": {"ingressRate": 2000000}`
	for name, tt := range map[string]struct {
		text   string
		ifName string
		claim  string
		kilo   uint32
	}{
		"without a selection":         {"", "net1", "", 0},
		"names only":                  {"blue, blue@net1", "net1", "", 0},
		"by position":                 {`[{"name":"red"},{"name":"blue","ipam-claim-reference":"c"}]`, "net2", "c", 0},
		"not the position of another": {`[{"name":"red"},{"name":"blue","ipam-claim-reference":"c"}]`, "net1", "", 0},
		"by name":                     {`[{"name":"red"},{"name":"blue","interface":"b1",` + limit + `}]`, "b1", "", 2000},
		"by the former key":           {`[{"name":"blue","interfaceRequest":"b1",` + limit + `}]`, "b1", "", 2000},
		"a key in another case":       {`[{"name":"blue","Bandwidth":{"ingressRate":2000000}}]`, "net1", "", 2000},
		"another plugin's element":    {`[{"name":"ib","infiniband-guid":"c2"},{"name":"blue",` + limit + `}]`, "net2", "", 2000},
		"the network decides": {
			`[{"name":"red","interface":"b1"},{"name":"blue","interface":"b1",` + limit + `}]`, "b1", "", 2000,
		},
		"shifted by networks of Multus":     {`[{"name":"blue",` + limit + `}, {"name":"red"}]`, "net2", "", 2000},
		"in its position":                   {`[{"name":"blue"},{"name":"blue",` + limit + `}]`, "net2", "", 2000},
		"not before its position":           {`[{"name":"blue"},{"name":"blue",` + limit + `}]`, "net1", "", 0},
		"of a definition with another name": {`[{"name":"lan",` + limit + `}]`, "net1", "", 2000},
		"elements that say nothing":         {`[{"name":"a","interface":"b1"},{"name":"a","interface":"b1"}]`, "b1", "", 0},
		"empty values":                      {`[{"name":"blue","bandwidth":{},"ipam-claim-reference":""}]`, "net1", "", 0},
	} {
		e, err := ElementOf(map[string]string{AnnotationNetworks: tt.text}, Key{Network: "blue", IfName: tt.ifName})
		if err != nil || e.IPAMClaim != tt.claim || e.Limits.Ingress.Kilobits != tt.kilo {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestElementOfTheMainInterfaceIsInAnAnnotationOfItsOwn(t *testing.T) {
	annotations := map[string]string{
		AnnotationNetworks:       `[{"name":"red","bandwidth":{"ingressRate":1000000}}]`,
		AnnotationDefaultNetwork: `[{"name":"blue","bandwidth":{"egressRate":3000000}}]`,
	}
	e, err := ElementOf(annotations, Key{Network: "blue", IfName: "eth0"})
	if err != nil || e.Limits.Egress.Kilobits != 3000 || e.Annotation != AnnotationDefaultNetwork {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := ElementOf(annotations, Key{Network: "blue", IfName: "net7"}); err != nil || e.Annotation != "" {
		t.Errorf("net7 has %+v, %v", e, err)
	}
}

func TestElementThatCannotBeFollowedIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"two of one network": {
			`[{"name":"blue","interface":"net1"},{"name":"blue","interface":"net1","ipam-claim-reference":"c"}]`,
			"2 elements are for interface net1 of network blue",
		},
		"two of other networks": {
			`[{"name":"a","interface":"net1"},{"name":"b","interface":"net1","bandwidth":{"ingressRate":1000000}}]`,
			"name a different interface in each",
		},
		"an invalid limit": {
			`[{"name":"blue","bandwidth":{"ingress":"1M"}}]`, `network "blue": bandwidth: "ingress": unknown key`,
		},
		"an invalid claim": {
			`[{"name":"blue","ipam-claim-reference":"A/b"}]`, `ipam-claim-reference: expected the name of an IPAMClaim`,
		},
		"no list": {`{"name":"blue"}`, "expected a JSON list of objects"},
	} {
		_, err := ElementOf(map[string]string{AnnotationNetworks: tt.text}, Key{Network: "blue", IfName: "net1"})
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.HasPrefix(err.Error(), "annotation "+AnnotationNetworks) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestElementsThatMultusMayHaveShiftedAreRefused(t *testing.T) {
	text := `[{"name":"blue"},{"name":"blue","bandwidth":{"ingressRate":1000000}}]`
	_, err := ElementOf(map[string]string{AnnotationNetworks: text}, Key{Network: "blue", IfName: "net3"})
	if err == nil || !strings.Contains(err.Error(), "2 elements are for interface net3 of network blue") {
		t.Error(err)
	}
}

// The pod's own reference replaces the claim of the definition; the runtime's limits are the same element's.
func TestRequestIsCompletedByTheElement(t *testing.T) {
	var r Requested
	r.Options.PersistentIPs = true
	r.Limits.Ingress.Kilobits = 5
	r.Complete(Element{IPAMClaim: "c", Limits: Limits{Ingress: Rate{Kilobits: 7}, Egress: Rate{Kilobits: 9}}})
	if r.Options.IPAMClaim != "c" || r.Options.PersistentIPs || r.Limits.Ingress.Kilobits != 5 ||
		r.Limits.Egress.Kilobits != 9 {
		t.Errorf("%+v", r)
	}
	var kept Requested
	kept.Options.PersistentIPs = true
	kept.Complete(Element{})
	if !kept.Options.PersistentIPs {
		t.Error("an empty element changes the options")
	}
}
