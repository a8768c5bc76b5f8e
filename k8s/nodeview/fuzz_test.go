package nodeview

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// A fault of the code refuses one object, and not all of a node.
func TestAPanicRefusesOneObject(t *testing.T) {
	_, err := guarded(func() (pod.Network, error) {
		var none []netip.Prefix
		return pod.Network{CIDRs: none[:1]}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("the conversion ended with %v", err)
	}
	want := errors.New("its own")
	if n, err := guarded(func() (pod.Network, error) { return pod.Network{Name: "blue"}, want }); n.Name != "blue" ||
		!errors.Is(err, want) {
		t.Errorf("the conversion returned %+v, %v", n, err)
	}
}

// FuzzObjects reads any CustomNetwork, IPPool, ExternalInterface and Node.
func FuzzObjects(f *testing.F) {
	for _, text := range []string{
		`{"spec":{"type":"L2","cidrs":["10.7.0.0/24","fd00:7::/64"],"mtu":1400,"vni":7,"antiSpoof":true},"metadata":{"name":"blue"}}`,
		`{"spec":{"type":"L3","cidrs":["10.7.0.0/24"],"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}},"metadata":{"name":"blue"}}`,
		`{"spec":{"cidr":"10.9.0.0/16","blockSize":26,"nodeSelector":{"matchLabels":{"a":"b"}},"strictAffinity":false},"metadata":{"name":"pods"}}`,
		`{"spec":{"cidr":"::ffff:10.9.0.0/112"},"metadata":{"name":"pods"}}`,
		`{"spec":{"network":"blue","nodes":[{"node":"n1","interface":"eth1","vlan":7,"ips":["10.0.0.1/24"]}]},"metadata":{"name":"x"}}`,
		`{"spec":{"podCIDRs":["10.1.0.7/24","x"]},"status":{"addresses":[{"type":"InternalIP","address":"::ffff:10.0.0.1"}]},"metadata":{"annotations":{"contivpp.io/ip-pools":"[\"a\",\"\"]"}}}`,
		`{"spec":{"type":"L3","cidrs":["fd00:7::/64"],"gateway":"10.7.0.1"},"metadata":{"name":"blue"}}`,
		`{"spec":{"type":"L2","cidrs":["fd00:7::/64"],"routes":[{"to":"10.8.0.0/16","via":"10.7.0.9","metric":5}]},"metadata":{"name":"blue"}}`,
		`{"spec":{"type":"L2","cidrs":["10.7.0.0/24"],"gateway":"none","reserved":["10.7.0.1-10.7.0.9"],"excluded":["10.7.0.128/25"],"allowedAddresses":["10.7.0.100"],"virtualRouters":[51],"vlans":["100-110"]},"metadata":{"name":"blue"}}`,
		`{"spec":{"type":"L2","permissions":[{"podSelector":{"matchLabels":{"a":"b"}},"allowedAddresses":["10.7.0.96/28"],"virtualRouters":[7]}]},"metadata":{"name":"blue"}}`,
		`{"spec":{"type":"L3","cidrs":["10.7.0.0/24"],"routedPrefixes":["10.60.0.0/16"],"dns":{"nameservers":["10.7.0.53"],"search":["a.b"]}},"metadata":{"name":"blue"}}`,
		`{"spec":{"network":"blue","nodes":[{"node":"n1","interface":"eth1","vlans":["100-110"],"nativeVLAN":0,"outerVLAN":7}]},"metadata":{"name":"x"}}`,
	} {
		f.Add([]byte(text))
	}
	api, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		f.Fatal(err)
	}
	c, err := New(Config{Node: "n1", Client: api})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var network v1.CustomNetwork
		if json.Unmarshal(raw, &network) == nil {
			n, err := c.addressing.networks.convert(&network)
			if err == nil && (!pod.IsLabel(n.Name) || len(n.CIDRs) > 2) {
				t.Errorf("%s is network %+v", raw, n)
			}
		}
		var pool v1.IPPool
		if json.Unmarshal(raw, &pool) == nil {
			if p, err := c.addressing.pools.convert(&pool, Node{}); err == nil &&
				(!p.Prefix.IsValid() || p.Prefix != p.Prefix.Masked() || p.Prefix.Addr().Is4In6()) {
				t.Errorf("%s is pool %+v", raw, p)
			}
		}
		var external v1.ExternalInterface
		if json.Unmarshal(raw, &external) == nil {
			for _, n := range external.Spec.Nodes {
				if e, err := ExternalOf(&external, n); err == nil && len(e.Addresses) != len(n.IPs) {
					t.Errorf("%s is external interface %+v", raw, e)
				}
			}
		}
		var machine corev1.Node
		if json.Unmarshal(raw, &machine) == nil {
			for _, p := range nodeOf(&machine).PodCIDRs {
				if p != p.Masked() {
					t.Errorf("%s has podCIDR %v", raw, p)
				}
			}
		}
	})
}
