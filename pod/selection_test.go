package pod

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func selecting(text string) map[string]string { return map[string]string{AnnotationNetworks: text} }

func TestSelectionsHaveTwoForms(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "[]",
		" blue ":                     "[{shop blue net1 { []  false}  }]",
		"blue, infra/red@r0 ,a.b@x1": "[{shop blue net1 { []  false}  } {infra red r0 { []  false}  } {shop a.b x1 { []  false}  }]",
		"blue@x1,blue":               "[{shop blue x1 { []  false}  } {shop blue net2 { []  false}  }]",
		"[]":                         "[]",
		` [{"name":"blue"},{"name":"red","namespace":"infra","interface":"r0","mac":"02-00-00-00-00-07","ips":["10.5.0.7/24","fd05::7"]}]`: "[{shop blue net1 { []  false}  } {infra red r0 {02:00:00:00:00:07 [10.5.0.7/24 fd05::7/128]  false}  }]",
		`[{"name":"blue","cni-args":{"ips":["10.5.0.8"],"mac":"02:00:00:00:00:08","foo":[1]},"mac":"02:00:00:00:00:09"}]`:                  "[{shop blue net1 {02:00:00:00:00:09 [10.5.0.8/32]  false}  }]",
		`[{"name":"blue","default-route":["fd05::1","10.5.0.1"],"gateway":["10.5.0.1","fd05::1"]}]`:                                        "[{shop blue net1 { []  false} 10.5.0.1,fd05::1 }]",
	} {
		got, err := Selections(selecting(text), "shop")
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s:\ngot  %v, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestInvalidSelectionsAreRejectedByItem(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"blue,", `item "": expected name, namespace/name`},
		{"/blue", `item "/blue": expected`},
		{"blue@", `item "blue@": expected`},
		{"a/b/c", `network "a/b/c": invalid name of a NetworkAttachmentDefinition`},
		{"Blue", `network "shop/Blue": invalid name`},
		{"blue@sixteenbyteslong", `network "shop/blue": interface "sixteenbyteslong": the name must be`},
		{strings.Repeat("a,", 16) + "b", "17 networks, at most 16 are possible"},
		{strings.Repeat("x", maxAnnotation+1), "at most 16384 are read"},
		{`[{"name":"blue"}`, "expected a JSON list of objects"},
		{`["blue"]`, "item 1: expected a JSON object"},
		{`[{"name":"a"},{}]`, "item 2: name: the name of a NetworkAttachmentDefinition is required"},
		{`[{"name":"a","nmae":"b"}]`, `item 1: "nmae": unknown key; known are bandwidth, cni-args, default-route, gateway, interface`},
		{`[{"name":"a","name":"b"}]`, `item 1: "name" occurs twice`},
		{`[{"name":7}]`, `item 1: name: expected a string, not "7"`},
		{`[{"name":"a","namespace":"A B"}]`, `network "A B/a": invalid name of a namespace`},
		{`[{"name":"a","ips":"10.0.0.1"}]`, "item 1: ips: expected a JSON list of addresses"},
		{`[{"name":"a","ips":["10.0.0.1","10.0.0.2/8"]}]`, "item 1: ips: 10.0.0.2 is the second address of its family"},
		{`[{"name":"a","mac":"01:00:00:00:00:01"}]`, "item 1: mac: expected a unicast MAC"},
		{`[{"name":"a","cni-args":{"mac":"x"}}]`, "item 1: cni-args: expected a unicast MAC"},
		{`[{"name":"a","infiniband-guid":"c2:11"}]`, "item 1: infiniband-guid: Weft has no InfiniBand interfaces"},
		{`[{"name":"a","bandwidth":{"ingressRate":1}}]`, "item 1: bandwidth: ingressRate: expected 1k to 4T"},
		{`[{"name":"a","portMappings":[{"hostPort":1}]}]`, "item 1: portMappings: only main interfaces"},
		{`[{"name":"a","default-route":"10.0.0.1"}]`, "item 1: default-route: expected a JSON list of addresses"},
		{`[{"name":"a","default-route":["10.0.0.0/8"]}]`, "item 1: default-route: 10.0.0.0/8 is not the address of a router"},
		{
			`[{"name":"a","default-route":["10.0.0.1"],"gateway":["10.0.0.2"]}]`,
			"item 1: gateway: default-route and gateway name different routers, 10.0.0.1 and 10.0.0.2",
		},
	} {
		_, err := Selections(selecting(tc.text), "shop")
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalidAnnotation || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), AnnotationNetworks) {
			t.Errorf("%.80s: got %v, want code 103 with %q and the annotation's name", tc.text, err, tc.want)
		}
	}
}

// FuzzSelections parses arbitrary selections. Accepted ones are valid, and errors are one line.
func FuzzSelections(f *testing.F) {
	f.Add("blue, infra/red@r0")
	f.Add(
		`[{"name":"a","namespace":"b","interface":"c","ips":["10.0.0.1/8"],"mac":"02:00:00:00:00:01","cni-args":{"mac":"x"}}]`)
	f.Add("[{\"name\":\"a\",\"ips\":[\n5]}]")
	f.Add("[{\"name\":\"a\",\"interface\":\"c\",\"bandwidth\":{\"in\ngress\":1}}]")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"net1", "net2", "c"} { // as Multus passes it
			_, err := ElementOf(selecting(text), Key{Network: "a", IfName: name})
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error of %s is not one line: %q", name, err)
			}
		}
		got, err := Selections(selecting(text), "shop")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		for _, s := range got {
			if !IsLabel(s.Namespace) || !isSubdomain(s.Name) || !IsLinkName(s.Interface) || len(s.IPs) > 2 {
				t.Errorf("%q was accepted: %+v", text, s)
			}
		}
		if len(got) > MaxCustomInterfaces {
			t.Errorf("%q: %d were accepted", text, len(got))
		}
	})
}

func TestExtraMergesCustomAndSelectedInterfaces(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string
	}{
		{nil, "t1"},
		{[]string{"net1", "net2"}, "t1 net1 net2"},
		{[]string{"t1"}, `network "shop/blue": interface t1 is another interface of the pod`},
		{[]string{"eth0"}, `network "shop/blue": interface eth0 is another interface of the pod`},
		{[]string{"net1", "net1"}, "interface net1 is another"},
		{strings.Fields("a b c d e f g h i j k l m n o p"), "17 interfaces, at most 16"},
	} {
		ev := &Request{Key: Key{IfName: "eth0"}, Annotations: map[string]string{AnnotationCustom: "t1/tap"}}
		for _, name := range tc.names {
			ev.Selected = append(ev.Selected, InterfaceRequest{Name: name, Definition: "shop/blue"})
		}
		requests, err := ev.Extra()
		var names []string
		for _, r := range requests {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); err == nil && got != tc.want ||
			err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %s, %v, want %s", tc.names, got, err, tc.want)
		}
	}
}

func TestRequestOfADefinition(t *testing.T) {
	s := Selection{Namespace: "infra", Name: "nad", Interface: "net1"}
	withMAC := s
	withMAC.MAC = netaddr.MAC{2, 0, 0, 0, 0, 1}
	for _, tc := range []struct {
		selection    Selection
		config, want string
	}{
		{s, `{"type":"weft-cni"}`, "net1  default 0  []"},
		{
			s,
			`{"cniVersion":"1.0.0","name":"n","type":"weft-cni","mode":"delegate","capabilities":{"mac":true},"network":"blue","interfaceType":"veth","options":{"mtu":1400}}`,
			"net1 veth blue 1400  []",
		},
		{
			s,
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"weft-cni","network":"stub","interfaceType":"tap"}]}`,
			"net1 tap stub 0  []",
		},
		{
			withMAC,
			`{"type":"weft-cni","options":{"mac":"02:00:00:00:00:02","ips":["10.5.0.2"]},"args":{"cni":{"mac":"02:00:00:00:00:03"}}}`,
			"net1  default 0 02:00:00:00:00:01 [10.5.0.2/32]",
		},
		{
			s,
			`{"type":"weft-cni","options":{"mac":"02:00:00:00:00:02","ips":["10.5.0.2"]},"args":{"cni":{"ips":["10.5.0.3"],"x":1},"y":2}}`,
			"net1  default 0 02:00:00:00:00:02 [10.5.0.3/32]",
		},
		{s, `{"type":"weft-cni","args":[]}`, "net1  default 0  []"},
	} {
		d, err := ParseDefinition(tc.config)
		if err != nil {
			t.Errorf("%s: %v", tc.config, err)
			continue
		}
		r := d.Request(tc.selection)
		if got := fmt.Sprintln(r.Name, r.Type, r.Network, r.Options.MTU, r.Options.MAC, r.Options.IPs); got != tc.want+
			"\n" {
			t.Errorf("%s: got %s, want %s", tc.config, got, tc.want)
		}
		if r.Definition != "infra/nad" || r.Annotation() != AnnotationNetworks {
			t.Errorf("requested by %s, %s", r.Definition, r.Annotation())
		}
	}
}

func TestInvalidDefinitionsAreRejectedByKey(t *testing.T) {
	for config, want := range map[string]string{
		``:                                        "expected a JSON object",
		`{"type":"weft-cni"`:                      "is incomplete",
		`{"type":"weft-cni","netwrok":"blue"}`:    `"netwrok": unknown key; keys of interfaces are args, interfaceType, network, options`,
		`{"type":"weft-cni","network":"Blue"}`:    `"network": expected default, stub or the name`,
		`{"type":"weft-cni","network":1}`:         `"network": expected default`,
		`{"type":"weft-cni","interfaceType":" "}`: `"interfaceType": expected tap, veth or memif`,
		`{"type":"weft-cni","options":{"a":1}}`:   `"options": a: unknown option`,
		`{"type":"weft-cni","interfaceType":"tap","options":{"ringSize":512}}`: `"options": ringSize: only an interface of type memif`,
		`{"type":"weft-cni","ipam":{"type":"host-local"}}`:                     "only Multus supports other IPAM plugins",
		`{"plugins":[]}`: "expected a list of plugins",
		`{"plugins":[{"type":"weft-cni"},{"type":"weft-cni"}]}`: "only Multus supports a chain",
		`{"type":"weft-cni","type":"weft-cni"}`:                 "occurs twice",
		strings.Repeat(" ", maxAnnotation+1):                    "at most 16384 are read",
	} {
		if _, err := ParseDefinition(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want %s", config, err, want)
		}
	}
}

// emptyValues are the values of an optional key that are the same as no key.
var emptyValues = []string{"null", `""`, "[]", "{}", "{ }"}

// With Multus weft-cni reads the definition: TestEmptyValuesOfAConfigurationAreTheSameAsMissingKeys has the same rule.
func TestEmptyValuesOfADefinitionAreTheSameAsMissingKeys(t *testing.T) {
	want, err := ParseDefinition(`{"type":"weft-cni"}`)
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Concat(sortedKeys(definitionKeys), otherKeys, []string{"ipam"})
	for _, key := range slices.DeleteFunc(keys, func(key string) bool { return key == "type" }) {
		for _, value := range emptyValues {
			got, err := ParseDefinition(fmt.Sprintf(`{"type":"weft-cni",%q:%s}`, key, value))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: %+v, %v; want %+v", key, value, got, err, want)
			}
		}
	}
	for _, ipam := range []string{`{"type":""}`, `{"type":"weft-ipam"}`, `{"routes":[]}`} {
		if _, err := ParseDefinition(`{"type":"weft-cni","ipam":` + ipam + `}`); err != nil {
			t.Errorf("ipam %s: %v", ipam, err)
		}
	}
}

func TestEmptyValuesOfASelectionAreTheSameAsMissingKeys(t *testing.T) {
	selection := func(members string) map[string]string {
		return map[string]string{AnnotationNetworks: `[{"name":"blue"` + members + `}]`}
	}
	want, err := Selections(selection(""), "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Concat(sortedKeys(selectionKeys), sortedKeys(unsupportedKeys)) {
		for _, value := range emptyValues {
			if key == "name" {
				continue // required
			}
			got, err := Selections(selection(fmt.Sprintf(",%q:%s", key, value)), "shop")
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: %+v, %v; want %+v", key, value, got, err, want)
			}
			if key == "ips" || key == "mac" {
				got, err = Selections(selection(fmt.Sprintf(`,"cni-args":{%q:%s}`, key, value)), "shop")
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("cni-args: %s: %s: %+v, %v; want %+v", key, value, got, err, want)
				}
			}
		}
	}
	if _, err := Selections(selection(`,"nmae":""`), "shop"); err == nil {
		t.Error("an unknown key with an empty value is accepted")
	}
}

func TestADefinitionOfAnotherPluginIsDetected(t *testing.T) {
	for _, config := range []string{
		`{"type":"macvlan"}`, `{"plugins":[{"type":"weft-cni"},{"type":"tuning"}]}`, `{"name":"x"}`,
	} {
		if _, err := ParseDefinition(config); !errors.Is(err, ErrOtherPlugin) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// FuzzParseDefinition parses arbitrary definitions. Accepted ones are valid, and errors are one line.
func FuzzParseDefinition(f *testing.F) {
	f.Add(
		`{"type":"weft-cni","network":"blue","interfaceType":"memif","options":{"ringSize":512,"ips":["10.0.0.1"]},"args":{"cni":{"mac":"02:00:00:00:00:01"}}}`)
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
			t.Errorf("%q was accepted: %+v", config, d)
		}
	})
}

// The page of users names the keys that are served and those that are refused.
func TestPageNamesTheKeysOfSelections(t *testing.T) {
	text, err := os.ReadFile("../docs/multus.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ")
	_, list, _ := strings.Cut(page, "or a JSON list of `{")
	list, rest, _ := strings.Cut(list, "}`")
	for _, key := range sortedKeys(selectionKeys) {
		if !strings.Contains(list, `"`+key+`"`) && key != "gateway" { // the former name of default-route
			t.Errorf("the list %q lacks %s", list, key)
		}
	}
	before, _, found := strings.Cut(rest, " are refused with an error")
	at := strings.LastIndex(before, ". ")
	want := "`" + strings.Join(sortedKeys(unsupportedKeys), "` and `") + "`"
	if got := before[at+2:]; !found || got != want {
		t.Errorf("refused are %q, want %q", got, want)
	}
}
