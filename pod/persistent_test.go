package pod

import (
	"strings"
	"testing"
)

func TestPersistentIPs(t *testing.T) {
	for _, tt := range []struct{ name, custom, options, want string }{
		{"on", "t1/tap/blue", `{"t1": {"persistentIPs": true}}`, ""},
		{"off, with a claim", "t1/tap", `{"t1": {"persistentIPs": false, "ipamClaim": "db"}}`, ""},
		{"text", "t1/tap", `{"t1": {"persistentIPs": "yes"}}`, `"t1": persistentIPs: expected true or false`},
		{
			"with a claim", "t1/tap", `{"t1": {"persistentIPs": true, "ipamClaim": "db"}}`,
			`"t1": persistentIPs: ipamClaim names the claim already; remove one of both`,
		},
		{
			"a name with a dot", "t.1/tap", `{"t.1": {"persistentIPs": true}}`,
			`"t.1": persistentIPs: the name of the interface is a part of the name of its IPAMClaim`,
		},
		{"a name with capitals", "T1/tap", `{"T1": {"persistentIPs": true}}`, "use small letters, digits and -"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			annotations := map[string]string{AnnotationCustom: tt.custom, AnnotationOptions: tt.options}
			_, err := InterfaceRequests(annotations, "eth0")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// The interface of a definition may have a name that the annotation of the options could not have.
func TestClaimsOfInterfacesAreNamedByTheirPods(t *testing.T) {
	definition := Definition{Network: "blue"}
	definition.Options.PersistentIPs = true
	ev := &Request{ID: ID{Namespace: "shop", Name: "db-0"}, Key: Key{IfName: "eth0"}}
	ev.Selected = []InterfaceRequest{
		definition.Request(Selection{Namespace: "shop", Name: "blue", Interface: "net1"}),
		definition.Request(Selection{Interface: "net2", AddressRequest: AddressRequest{IPAMClaim: "mine"}}),
	}
	ev.Requested.Options.PersistentIPs = true
	requests, err := ev.Extra()
	if err != nil || requests[0].Options.IPAMClaim != "db-0.net1" || requests[1].Options.IPAMClaim != "mine" {
		t.Errorf("requests %+v, %v", requests, err)
	}
	if !requests[0].Options.PersistentIPs || requests[1].Options.PersistentIPs {
		t.Errorf("a reference of the pod does not take precedence: %+v", requests)
	}
	if err := ev.NameClaim(); err != nil || ev.Requested.Options.IPAMClaim != "db-0.eth0" {
		t.Errorf("main interface %+v, %v", ev.Requested.Options, err)
	}
	other := &Request{ID: ev.ID}
	other.Selected = []InterfaceRequest{definition.Request(Selection{Interface: "Net"})}
	both := `{"type": "weft-cni", "options": {"persistentIPs": true, "ipamClaim": "db"}}`
	const refusal = "ipamClaim names the claim already"
	if _, err := ParseDefinition(both); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a definition with both options: %v", err)
	}
	main := &Request{ID: ev.ID, Key: ev.Key}
	main.Requested.Options.AddressRequest = AddressRequest{PersistentIPs: true, IPAMClaim: "mine"}
	if err := main.NameClaim(); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a main interface with both options: %v", err)
	}
	if _, err := other.Extra(); err == nil || !strings.Contains(err.Error(), "interface Net: persistentIPs: the name") {
		t.Errorf("a name with capitals: %v", err)
	}
}

func TestAResourceClaimCannotHavePersistentIPs(t *testing.T) {
	var p ClaimParameters
	raw := `{"apiVersion": "contivpp.io/v1", "kind": "MemifParameters", "interface": "m1",
		"options": {"persistentIPs": true}}`
	if err := p.Merge([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Request(); err == nil ||
		!strings.Contains(err.Error(), "options: persistentIPs: a ResourceClaim cannot have this option") {
		t.Errorf("error %v", err)
	}
}

// A claim that was made again has another UID.
func TestTheMACOfAReplicaFollowsTheSeedOfItsClaim(t *testing.T) {
	claim := IPAMClaim{Namespace: "shop", Name: "db-0.t1", UID: "u"}
	if got := claim.MACSeed(); got != "IPAMClaim shop/db-0.t1 u" {
		t.Errorf("the seed is %q", got)
	}
	claim.Seed = "uid of db"
	if got := claim.MACSeed(); got != "IPAMClaim shop/db-0.t1 uid of db" {
		t.Errorf("the seed is %q", got)
	}
}
