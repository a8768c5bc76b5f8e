package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestADefinitionSaysWhatItsInterfacesAre(t *testing.T) {
	s := Selection{Namespace: "infra", Name: "nad", Interface: "net1"}
	asking := s
	asking.Asked = Asked{MAC: "02:00:00:00:00:01"}
	for _, tc := range []struct {
		selection    Selection
		config, want string
	}{
		{s, `{"type":"weft-cni"}`, "net1  default 0  []"},
		{s, `{"cniVersion":"1.0.0","name":"n","type":"weft-cni","mode":"delegate","capabilities":{"mac":true},"network":"blue","interfaceType":"veth","options":{"mtu":1400}}`, "net1 veth blue 1400  []"},
		{s, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"weft-cni","network":"stub","interfaceType":"tap"}]}`, "net1 tap stub 0  []"},
		{asking, `{"type":"weft-cni","options":{"mac":"02:00:00:00:00:02","ips":["10.5.0.2"]},"args":{"cni":{"mac":"02:00:00:00:00:03"}}}`, "net1  default 0 02:00:00:00:00:01 [10.5.0.2/32]"},
		{s, `{"type":"weft-cni","options":{"mac":"02:00:00:00:00:02","ips":["10.5.0.2"]},"args":{"cni":{"ips":["10.5.0.3"],"x":1},"y":2}}`, "net1  default 0 02:00:00:00:00:02 [10.5.0.3/32]"},
		{s, `{"type":"weft-cni","args":[]}`, "net1  default 0  []"},
	} {
		d, err := ParseDefinition(tc.config)
		if err != nil {
			t.Errorf("%s: %v", tc.config, err)
			continue
		}
		r := d.Request(tc.selection)
		if got := fmt.Sprintln(r.Name, r.Type, r.Network, r.Options.MTU, r.Options.MAC, r.Options.IPs); got != tc.want+"\n" {
			t.Errorf("%s: got %s, want %s", tc.config, got, tc.want)
		}
		if r.Definition != "infra/nad" || r.By() != AnnotationNetworks {
			t.Errorf("it is asked for by %s, %s", r.Definition, r.By())
		}
	}
}

func TestAWrongDefinitionIsRefusedByKey(t *testing.T) {
	for config, want := range map[string]string{
		``:                                       "expected a JSON object",
		`{"type":"weft-cni"`:                     "does not end",
		`{"type":"weft-cni","netwrok":"blue"}`:   `"netwrok": unknown key; of interfaces there are args, interfaceType, network, options`,
		`{"type":"weft-cni","network":"Blue"}`:   `"network": expected default, stub or the name`,
		`{"type":"weft-cni","network":1}`:        `"network": expected default`,
		`{"type":"weft-cni","interfaceType":""}`: `"interfaceType": expected tap, veth or memif`,
		`{"type":"weft-cni","options":{"a":1}}`:  `"options": a: unknown option`,
		`{"type":"weft-cni","interfaceType":"tap","options":{"ringSize":512}}`: `"options": ringSize: only an interface of type memif`,
		`{"type":"weft-cni","ipam":{"type":"host-local"}}`:                     "only Multus has another IPAM plugin asked",
		`{"plugins":[]}`: "expected a list of plugins",
		`{"plugins":[{"type":"weft-cni"},{"type":"weft-cni"}]}`: "several are a chain, which only Multus executes",
		`{"type":"weft-cni","type":"weft-cni"}`:                 "is there twice",
		strings.Repeat(" ", maxAnnotation+1):                    "at most 16384 are read",
	} {
		if _, err := ParseDefinition(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want %s", config, err, want)
		}
	}
}

func TestADefinitionOfAnotherPluginIsKnownAsSuch(t *testing.T) {
	for _, config := range []string{`{"type":"macvlan"}`, `{"plugins":[{"type":"weft-cni"},{"type":"tuning"}]}`, `{"name":"x"}`} {
		if _, err := ParseDefinition(config); !errors.Is(err, ErrOtherPlugin) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func FuzzParseDefinition(f *testing.F) {
	f.Add(`{"type":"weft-cni","network":"blue","interfaceType":"memif","options":{"ringSize":512,"ips":["10.0.0.1"]},"args":{"cni":{"mac":"02:00:00:00:00:01"}}}`)
	f.Add(`{"plugins":[{"type":"weft-cni"}]}`)
	f.Fuzz(func(t *testing.T, config string) {
		d, err := ParseDefinition(config)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		if !IsLabel(d.Network) || d.Type != "" && !IsInterfaceType(d.Type) {
			t.Errorf("%q was taken: %+v", config, d)
		}
	})
}
