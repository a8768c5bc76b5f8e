package pod

import (
	"encoding/json"
	"strings"
	"testing"
)

func mergedParameters(t *testing.T, texts ...string) (p ClaimParameters, err error) {
	t.Helper()
	for _, text := range texts {
		if err := p.Merge([]byte(text)); err != nil {
			return p, err
		}
	}
	return p, nil
}

const ofClaim = `"apiVersion":"contivpp.io/v1","kind":"MemifParameters"`

// Parameters of a claim precede those of its class, option by option; the result is what the annotations would request.
func TestParametersOfClaimPrecedeThoseOfClass(t *testing.T) {
	p, err := mergedParameters(t,
		`{`+ofClaim+`,"network":"blue","options":{"ringSize":512,"mode":"ip"}}`,
		`{`+ofClaim+`,"interface":"fast","options":{"ringSize":2048,"ips":["10.5.0.7"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Named("r", 0, 1).Request()
	if err != nil {
		t.Fatal(err)
	}
	annotated, err := InterfaceRequests(map[string]string{
		AnnotationCustom:  "fast/memif/blue",
		AnnotationOptions: `{"fast":{"ringSize":2048,"mode":"ip","ips":["10.5.0.7"]}}`,
	}, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	is, _ := json.Marshal(got)
	want, _ := json.Marshal(annotated[0])
	if string(is) != string(want) {
		t.Errorf("claim requests %s, annotations %s", is, want)
	}
}

func TestInterfaceOfClaimIsNamedByItsRequest(t *testing.T) {
	for _, c := range []struct {
		parameters ClaimParameters
		request    string
		n, devices int
		want       string
	}{
		{ClaimParameters{}, "memif", 0, 1, "memif"},
		{ClaimParameters{}, "any/fast", 0, 1, "fast"},
		{ClaimParameters{}, "memif", 1, 2, "memif2"},
		{ClaimParameters{Interface: "m"}, "memif", 0, 1, "m"},
		{ClaimParameters{Interface: "m"}, "memif", 0, 3, "m1"},
	} {
		if got := c.parameters.Named(c.request, c.n, c.devices).Interface; got != c.want {
			t.Errorf("%+v: interface %s", c, got)
		}
	}
}

func TestInvalidParametersOfClaimAreRefusedByName(t *testing.T) {
	for text, want := range map[string]string{
		`{"network":"blue"}`:                  "expected contivpp.io/v1 and MemifParameters",
		`{` + ofClaim + `,"networks":"blue"}`: "networks: unknown parameter",
		`{` + ofClaim + `,"network":7}`:       "network: expected a string",
		`{` + ofClaim +
			`,"network":"Blue"}`: "the network must be default, stub or the name of a custom network",
		`{` + ofClaim + `,"interface":"lo"}`:         "the name must be a Linux interface name",
		`{` + ofClaim + `,"options":{"ringsize":2}}`: "ringsize: unknown option",
		`{` + ofClaim + `,"options":{"ringSize":3}}`: "expected a power of two",
		`{` + ofClaim +
			`,"options":{"container":"c"}}`: "the pod's spec says which containers have the claim",
		`{` + ofClaim + `,"network":"a","network":"b"}`: "occurs twice",
		`{` + ofClaim + `,"delegate":"yes"}`:            "delegate: expected true or false",
		`{` + ofClaim +
			`,"delegate":true,"network":"blue"}`: "the NetworkAttachmentDefinition has network and options",
		`{` + ofClaim +
			`,"delegate":true,"options":{"mtu":1400}}`: "the NetworkAttachmentDefinition has network and options",
		`[]`: "expected a JSON object",
	} {
		p, err := mergedParameters(t, text)
		if err == nil {
			_, err = p.Named("memif", 0, 1).Request()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestClaimAndAnnotationCannotNameOneInterfaceTwice(t *testing.T) {
	ev := &Request{
		Key:         Key{IfName: "eth0"},
		Annotations: map[string]string{AnnotationCustom: "m1/tap"},
		Resolved:    Resolved{Claimed: []InterfaceRequest{{Name: "m1", Type: TypeMemif, Claim: "shop/c"}}},
	}
	if _, err := ev.Extra(); err == nil ||
		!strings.Contains(err.Error(), "claim shop/c: interface m1 is another interface of the pod") {
		t.Errorf("error %v", err)
	}
}

func FuzzClaimParameters(f *testing.F) {
	f.Add([]byte(`{` + ofClaim + `,"network":"blue","options":{"ringSize":512}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p ClaimParameters
		if p.Merge(raw) != nil {
			return
		}
		r, err := p.Request()
		if err != nil {
			return
		}
		if !IsLinkName(r.Name) || !IsLabel(r.Network) || r.Type != TypeMemif ||
			r.Options.ValidateFor(TypeMemif) != nil {
			t.Errorf("%s requests %+v", raw, r)
		}
	})
}
