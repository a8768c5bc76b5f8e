package pod_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

// annotations are the annotations of a pod: its interfaces, their options, and the networks that it selects.
func annotations(interfaces, options, networks string) map[string]string {
	all := make(map[string]string)
	for name, value := range map[string]string{
		pod.AnnotationCustom: interfaces, pod.AnnotationOptions: options, pod.AnnotationNetworks: networks,
	} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// many requests interfaces.
func many(n int) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("x%d/tap/blue", i))
	}
	return strings.Join(items, ",")
}

func TestChangesAreWhatThePodRequestsOtherwise(t *testing.T) {
	had := func(names ...string) []pod.Interface {
		list := []pod.Interface{{Name: "eth0", Type: pod.TypeTap}}
		for _, name := range names {
			i := pod.Interface{Name: name, Type: pod.TypeTap, Network: "blue"}
			if strings.HasPrefix(name, "net") {
				i.Definition = "lab/blue"
			}
			list = append(list, i)
		}
		return list
	}
	selected := func(names ...string) (list []pod.InterfaceRequest) {
		for _, name := range names {
			list = append(list, pod.InterfaceRequest{Name: name, Network: "blue", Definition: "lab/blue"})
		}
		return list
	}
	for name, tt := range map[string]struct {
		was, is  map[string]string
		had      []pod.Interface
		selected []pod.InterfaceRequest
		claimed  []pod.InterfaceRequest
		want     string
	}{
		"an interface is requested": {
			was: annotations("t1/tap/blue", "", ""), is: annotations("t1/tap/blue, t2/veth/red", "", ""),
			had: had("t1"), want: "made: t2 on network red",
		},
		"an interface is not requested any more": {
			was: annotations("t1/tap/blue, t2/tap/blue", "", ""), is: annotations("t2/tap/blue", "", ""),
			had: had("t1", "t2"), want: "removed: t1",
		},
		"the order changes": {
			was: annotations("t1/tap/blue, t2/tap/blue", "", ""), is: annotations("t2/tap/blue,t1/tap/blue", "", ""),
			had: had("t1", "t2"),
		},
		"the type changes": {
			was: annotations("t1/tap/blue", "", ""), is: annotations("t1/veth/blue", "", ""),
			had: had("t1"), want: "made: t1 on network blue",
		},
		"an option changes": {
			was: annotations("t1/tap/blue, t2/tap/blue", `{"t1": {"mtu": 1400}}`, ""),
			is:  annotations("t1/tap/blue, t2/tap/blue", `{"t1": {"mtu": 1300}}`, ""),
			had: had("t1", "t2"), want: "made: t1 on network blue",
		},
		"an option is written otherwise": {
			was: annotations("t1/tap/blue", `{"t1": {"mtu": 1400}}`, ""),
			is:  annotations("t1/tap/blue", `{"t1":{"mtu":1400}}`, ""),
			had: had("t1"),
		},
		"persistent addresses, unchanged": {
			was: annotations("t1/tap/blue", `{"t1": {"persistentIPs": true}}`, ""),
			is:  annotations("t1/tap/blue, t2/tap/red", `{"t1": {"persistentIPs": true}}`, ""),
			had: had("t1"), want: "made: t2 on network red",
		},
		"all annotations are gone": {
			was: annotations("t1/tap/blue", "", "blue"), had: had("t1", "net1"), want: "removed: t1, net1",
		},
		"the annotations of before are lost": {
			is: annotations("t1/tap/blue, t2/tap/red", "", ""), had: had("t1", "t9"), want: "made: t2 on network red",
		},
		"the annotations of before are lost, and the interface is another one": {
			is: annotations("t1/tap/red", "", ""), had: had("t1"), want: "made: t1 on network red",
		},
		"a network is selected": {
			is: annotations("", "", "blue"), had: had(), selected: selected("net1"), want: "made: net1 on network blue",
		},
		"a network is not selected any more": {
			was: annotations("", "", "blue, lab/blue@net7"), is: annotations("", "", "blue"), had: had("net1", "net7"),
			selected: selected("net1"), want: "removed: net7",
		},
		"the request of a selection changes": {
			was: annotations("", "", "blue"), is: annotations("", "", `[{"name": "blue", "mac": "02:00:00:00:00:01"}]`),
			had: had("net1"), selected: selected("net1"), want: "made: net1 on network blue",
		},
		"the selection is not edited, and its definitions are not read": {
			was: annotations("t1/tap/blue", "", "blue"), is: annotations("", "", "blue"), had: had("t1", "net1"),
			want: "removed: t1",
		},
		"an interface of a claim stays": {
			was: annotations("t1/tap/blue", "", ""), had: had("t1", "m1"),
			claimed: []pod.InterfaceRequest{{Name: "m1", Type: pod.TypeMemif, Network: "blue", Claim: "lab/c"}},
			want:    "removed: t1",
		},
		"more interfaces than possible": {
			was: annotations("", "", "blue"), is: annotations(many(16), "", "blue"), had: had("net1"),
			want: "the pod would have 17 interfaces, at most 16 are possible",
		},
		"as many interfaces as possible": {
			was: annotations("", "", "blue"), is: annotations(many(15), "", "blue"), had: had("net1"),
			want: "x14 on network blue",
		},
		"the name of the main interface": {
			is: annotations("t1/tap/blue, net1/tap/blue", "", "blue@net1"), had: had("net1"),
			want: "annotation contivpp.io/custom-if: interface net1 is another interface of the pod; choose another name",
		},
		"a route through an interface that is removed": {
			was: annotations("t1/tap/blue, t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, ""),
			is:  annotations("t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, ""),
			had: had("t1", "t2"), want: "leads through interface t1, which the edit changes; remove the route first",
		},
		"a route through an interface that is made again": {
			was: annotations("t1/tap/blue, t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, ""),
			is:  annotations("t1/veth/blue, t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, ""),
			had: had("t1", "t2"), want: "leads through interface t1, which the edit changes; remove the route first",
		},
		"a removed interface with a route through another one": {
			was: annotations("t1/tap/blue, t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, ""),
			is:  annotations("t1/tap/blue", "", ""),
			had: had("t1", "t2"), want: "leads through interface t1, which the edit does not change",
		},
		"DNS comes too late": {
			was: annotations("t1/tap/blue", "", ""), is: annotations("t1/tap/blue", `{"t1": {"dns": true}}`, ""),
			had: had("t1"), want: "dns takes effect only when a pod is created",
		},
		"the interface with the default route": {
			was: annotations("t1/tap/blue", `{"t1": {"defaultRoute": true}}`, ""),
			had: append(had(), pod.Interface{Name: "t1", Type: pod.TypeTap, Routes: []pod.Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0")},
			}}),
			want: "interface t1 has the default route of the pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}
			id := pod.ID{Namespace: "lab", Name: "a"}
			at := &pod.Attachment{Key: key, Pod: id, Annotations: tt.was, Interfaces: tt.had}
			now := &pod.Request{
				Key: key, ID: id, IsEdit: true, Annotations: tt.is,
				Resolved: pod.Resolved{Selected: tt.selected, Claimed: tt.claimed},
			}
			changes, err := pod.ChangesOf(at, now)
			got := changes.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("changes are %q, want %q", got, tt.want)
			}
		})
	}
}

// An edit of the options or the interfaces leaves the annotations that take effect at ADD only as they were.
func TestAnEditKeepsTheOtherAnnotations(t *testing.T) {
	at := &pod.Attachment{Annotations: map[string]string{
		pod.AnnotationCustom: "t1/tap", pod.AnnotationIPs: "10.1.0.7", pod.AnnotationOptions: "{}",
	}}
	edited := at.Edited(map[string]string{pod.AnnotationCustom: "t2/tap", pod.AnnotationIPs: "10.1.0.8"})
	if edited[pod.AnnotationCustom] != "t2/tap" || edited[pod.AnnotationIPs] != "10.1.0.7" || len(edited) != 2 {
		t.Errorf("annotations after the edit: %v", edited)
	}
	if at.IsEdited(map[string]string{pod.AnnotationCustom: "t1/tap", pod.AnnotationOptions: "{}"}) {
		t.Error("an edit of the addresses of the main interface changes interfaces")
	}
}
