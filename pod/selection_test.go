package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func selecting(text string) map[string]string { return map[string]string{AnnotationNetworks: text} }

func TestNetworksAreSelectedInBothForms(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "[]",
		" blue ":                     "[{shop blue net1 {[] }}]",
		"blue, infra/red@r0 ,a.b@x1": "[{shop blue net1 {[] }} {infra red r0 {[] }} {shop a.b x1 {[] }}]",
		"blue@x1,blue":               "[{shop blue x1 {[] }} {shop blue net2 {[] }}]",
		"[]":                         "[]",
		` [{"name":"blue"},{"name":"red","namespace":"infra","interface":"r0","mac":"02-00-00-00-00-07","ips":["10.5.0.7/24","fd05::7"]}]`: "[{shop blue net1 {[] }} {infra red r0 {[10.5.0.7/24 fd05::7/128] 02:00:00:00:00:07}}]",
		`[{"name":"blue","cni-args":{"ips":["10.5.0.8"],"mac":"02:00:00:00:00:08","foo":[1]},"mac":"02:00:00:00:00:09"}]`:                  "[{shop blue net1 {[10.5.0.8/32] 02:00:00:00:00:09}}]",
	} {
		got, err := Selections(selecting(text), "shop")
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s:\ngot  %v, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestAWrongSelectionIsRefusedByItem(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"blue,", `item "": expected name, namespace/name`},
		{"/blue", `item "/blue": expected`},
		{"blue@", `item "blue@": expected`},
		{"a/b/c", `network "a/b/c": its name is no name of a NetworkAttachmentDefinition`},
		{"Blue", `network "shop/Blue": its name is no name`},
		{"blue@sixteenbyteslong", `network "shop/blue": interface "sixteenbyteslong": the name must be`},
		{strings.Repeat("a,", 16) + "b", "17 networks, at most 16 are possible"},
		{strings.Repeat("x", maxAnnotation+1), "at most 16384 are read"},
		{`[{"name":"blue"}`, "expected a JSON list of objects"},
		{`["blue"]`, "item 1: expected a JSON object"},
		{`[{"name":"a"},{}]`, "item 2: name: the name of a NetworkAttachmentDefinition is needed"},
		{`[{"name":"a","nmae":"b"}]`, `item 1: "nmae": unknown key; known are cni-args, interface`},
		{`[{"name":"a","name":"b"}]`, `item 1: "name" is there twice`},
		{`[{"name":7}]`, `item 1: name: expected a text, not "7"`},
		{`[{"name":"a","namespace":"A B"}]`, `network "A B/a": its namespace is no name of a namespace`},
		{`[{"name":"a","ips":"10.0.0.1"}]`, "item 1: ips: expected a JSON list of addresses"},
		{`[{"name":"a","ips":["10.0.0.1","10.0.0.2/8"]}]`, "item 1: ips: 10.0.0.2 is the second address of its family"},
		{`[{"name":"a","mac":"01:00:00:00:00:01"}]`, "item 1: mac: expected a unicast MAC"},
		{`[{"name":"a","cni-args":{"mac":"x"}}]`, "item 1: cni-args: expected a unicast MAC"},
		{`[{"name":"a","infiniband-guid":"c2:11"}]`, "item 1: infiniband-guid: Weft has no InfiniBand interfaces"},
		{`[{"name":"a","bandwidth":{}}]`, "item 1: bandwidth: Weft does not shape"},
		{`[{"name":"a","portMappings":[]}]`, "item 1: portMappings: ports of the node"},
		{`[{"name":"a","default-route":["10.0.0.1"]}]`, "item 1: default-route: the default route is the main interface's"},
	} {
		_, err := Selections(selecting(tc.text), "shop")
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalidAnnotation || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), AnnotationNetworks) {
			t.Errorf("%.80s: got %v, want code 103 with %q and the annotation's name", tc.text, err, tc.want)
		}
	}
}

func FuzzSelections(f *testing.F) {
	f.Add("blue, infra/red@r0")
	f.Add(`[{"name":"a","namespace":"b","interface":"c","ips":["10.0.0.1/8"],"mac":"02:00:00:00:00:01","cni-args":{"mac":"x"}}]`)
	f.Add("[{\"name\":\"a\",\"ips\":[\n5]}]")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Selections(selecting(text), "shop")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
			return
		}
		for _, s := range got {
			if !IsLabel(s.Namespace) || !isSubdomain(s.Name) || !IsLinkName(s.Interface) || len(s.Asked.IPs) > 2 {
				t.Errorf("%q was taken: %+v", text, s)
			}
		}
		if len(got) > MaxCustomInterfaces {
			t.Errorf("%q: %d were taken", text, len(got))
		}
	})
}

func TestAPodsInterfacesAreThoseOfItsAnnotationsAndThoseItSelected(t *testing.T) {
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
		ev := &AddPod{Key: Key{IfName: "eth0"}, Annotations: map[string]string{AnnotationCustom: "t1/tap"}}
		for _, name := range tc.names {
			ev.Selected = append(ev.Selected, InterfaceRequest{Name: name, Definition: "shop/blue"})
		}
		requests, err := ev.Extra()
		var names []string
		for _, r := range requests {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); err == nil && got != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %s, %v, want %s", tc.names, got, err, tc.want)
		}
	}
}
