package pod

import (
	"strings"
	"testing"
)

// notNameServer is the end of the error of a wrong name server.
const notNameServer = "is not the address of a name server"

func TestInvalidDNSOfANetworkIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		dns  DNS
		want string // "": valid
	}{
		"nothing": {DNS{}, ""},
		"all": {DNS{
			Nameservers: []string{"10.7.0.53", "fd00::35", "127.0.0.53"},
			Domain:      "shop.example.",
			Search:      []string{"shop.example", "example"},
			Options:     []string{"ndots:2", "edns0"},
		}, ""},
		"a name as name server":       {DNS{Nameservers: []string{"ns.example"}}, `dns: nameservers: "ns.example" is not`},
		"a prefix as name server":     {DNS{Nameservers: []string{"10.7.0.53/24"}}, notNameServer},
		"a zone of a name server":     {DNS{Nameservers: []string{"fe80::1%eth0"}}, notNameServer},
		"a mapped name server":        {DNS{Nameservers: []string{"::ffff:10.7.0.53"}}, notNameServer},
		"a group as name server":      {DNS{Nameservers: []string{"224.0.0.251"}}, notNameServer},
		"no address as name server":   {DNS{Nameservers: []string{"::"}}, notNameServer},
		"a domain with a blank":       {DNS{Domain: "shop example"}, `dns: domain: "shop example" is not a domain`},
		"a long domain":               {DNS{Domain: strings.Repeat("a.", 127)}, "is not a domain"},
		"a search domain in capitals": {DNS{Search: []string{"a", "B"}}, `dns: search: "B" is not a domain`},
		"an empty search domain":      {DNS{Search: []string{""}}, `dns: search: "" is not a domain`},
		"two options in one text":     {DNS{Options: []string{"ndots:2 edns0"}}, `dns: options: "ndots:2 edns0" is not an`},
		"an empty option":             {DNS{Options: []string{""}}, "is not an option of a resolver"},
		"many name servers": {
			DNS{Nameservers: make([]string, 33)}, "dns: 33 name servers, at most 32 are possible",
		},
		"a long option": {
			DNS{Options: []string{strings.Repeat("x", 256)}}, "options of the resolver with 256 bytes, at most 255",
		},
	} {
		n := Network{Name: "blue", Type: L2, DNS: tt.dns}
		err := n.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func TestANetworkWithAnyPartOfDNSHasOne(t *testing.T) {
	for part, dns := range map[string]DNS{
		"a name server":   {Nameservers: []string{"10.7.0.53"}},
		"a domain":        {Domain: "example"},
		"a search domain": {Search: []string{"example"}},
		"an option":       {Options: []string{"ndots:2"}},
	} {
		if dns.IsZero() {
			t.Errorf("%s: no DNS", part)
		}
	}
	if !(DNS{}).IsZero() {
		t.Error("a DNS without any part is one")
	}
}

func TestOneInterfaceOfAPodAsksForDNS(t *testing.T) {
	requests, err := InterfaceRequests(map[string]string{
		AnnotationCustom:  "t1/tap/blue, m1/memif/red",
		AnnotationOptions: `{"t1": {"dns": false}, "m1": {"dns": true}}`,
	}, "eth0")
	if err != nil || requests[0].Options.DNS || !requests[1].Options.DNS {
		t.Errorf("%+v, %v", requests, err)
	}
	_, err = InterfaceRequests(map[string]string{
		AnnotationCustom:  "t1/tap/blue, m1/memif/red",
		AnnotationOptions: `{"m1": {"dns": true}, "t1": {"dns": true}}`,
	}, "eth0")
	const want = `annotation contivpp.io/custom-if-options: "m1": dns: interface t1 has this option`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
