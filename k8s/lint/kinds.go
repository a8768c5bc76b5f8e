package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/internal/jsonerror"
	"github.com/weftnet/weft/internal/yamltext"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// kinds validate objects that are no pods. They report false for an object without rules of Weft. It is a function
// because the validation of an object may validate others.
func kinds() map[string]func(o *object) bool {
	return map[string]func(*object) bool{
		"Namespace": namespace, "Service": service,
		"contivpp.io/CustomNetwork": customNetwork, "contivpp.io/IPPool": ipPool,
		"contivpp.io/ExternalInterface": externalInterface,
		"contivpp.io/WeftConfig":        weftConfig,
		"contivpp.io/IPBlock":           written("ipblocks"), "contivpp.io/NodeNetwork": written("nodenetworks"),
		"contivpp.io/PodInterfaces": written("podinterfaces"),
		"ConfigMap":                 configMap,
		"apiextensions.k8s.io/CustomResourceDefinition": customResourceDefinition,
		"k8s.cni.cncf.io/NetworkAttachmentDefinition":   definition,
		"resource.k8s.io/ResourceClaim":                 resourceClaim,
		"resource.k8s.io/ResourceClaimTemplate":         resourceClaimTemplate,
		"resource.k8s.io/DeviceClass":                   deviceClass,
	}
}

func annotation(name string) yamltext.Path { return yamltext.Path{"metadata", "annotations", name} }

func spec(steps ...any) yamltext.Path { return append(yamltext.Path{"spec"}, steps...) }

func namespace(o *object) bool {
	o.clusterScoped()
	pools, err := pod.ParsePools(o.annotations())
	if err != nil {
		o.say(annotation(pod.AnnotationPools), err)
	}
	o.report.found.asksForPools(o, annotation(pod.AnnotationPools), pools)
	return true
}

// service reports the controller's findings about a Service with endpoints of Weft, and unknown annotations of Weft.
func service(o *object) bool {
	var s corev1.Service
	s.Annotations = o.annotations()
	s.Spec.Selector, _, _ = unstructured.NestedStringMap(o.fields, "spec", "selector")
	s.Spec.Type = corev1.ServiceType(o.text("spec", "type"))
	for _, name := range slices.Sorted(maps.Keys(s.Annotations)) {
		switch {
		case name == endpoints.AnnotationSelector:
			if _, err := endpoints.Selector(&s); err != nil {
				o.say(annotation(name), err)
			}
		case strings.HasPrefix(name, pod.AnnotationPrefix):
			o.say(annotation(name),
				fmt.Errorf("unknown annotation %s; Services can have %s", name, endpoints.AnnotationSelector))
		}
	}
	s.Namespace = o.namespace()
	s.Name = o.name()
	o.report.found.services = append(o.report.found.services, selecting{o, &s})
	return true
}

// typed decodes an object of one of Weft's kinds; false: its schema has reported why that is impossible.
func typed[T any](o *object, kind string) (v T, ok bool) {
	o.clusterScoped()
	before := len(o.report.Faults)
	schemas()[kind].validate(o)
	if len(o.report.Faults) > before {
		return v, false
	}
	raw, err := json.Marshal(o.fields)
	if err == nil {
		err = jsonerror.Plain(json.Unmarshal(raw, &v))
	}
	if err != nil {
		o.say(nil, err)
	}
	return v, err == nil
}

func customNetwork(o *object) bool {
	o.report.found.add("CustomNetwork", o.name())
	n, ok := typed[v1.CustomNetwork](o, "customnetworks")
	if !ok {
		return true
	}
	network, err := nodeview.NetworkOf(&n)
	if err != nil {
		o.say(spec(), err)
		return true
	}
	o.selector("namespaceSelector", n.Spec.NamespaceSelector)
	o.report.found.takesVNI(o, network.VNI)
	o.report.found.isNetwork(network)
	return true
}

func ipPool(o *object) bool {
	o.report.found.add("IPPool", o.name())
	p, ok := typed[v1.IPPool](o, "ippools")
	if !ok {
		return true
	}
	pool, err := nodeview.PoolOf(&p)
	if err != nil {
		o.say(spec("cidr"), err)
		return true
	}
	o.selector("namespaceSelector", p.Spec.NamespaceSelector)
	o.selector("nodeSelector", p.Spec.NodeSelector)
	o.report.found.hasPool(o, pool.Prefix)
	return true
}

func externalInterface(o *object) bool {
	e, ok := typed[v1.ExternalInterface](o, "externalinterfaces")
	if !ok {
		return true
	}
	if e.Spec.Network == pod.StubNetwork {
		// the text of the schema's rule
		o.say(spec("network"), errors.New("the network stub cannot have external interfaces"))
	}
	o.report.found.asksForNetwork(o, spec("network"), e.Spec.Network)
	seen := make(map[v1.NodeName]bool)
	for i, n := range e.Spec.Nodes {
		if seen[n.Node] {
			o.say(spec("nodes", i, "node"), fmt.Errorf("node %s has more than one interface", n.Node))
		}
		seen[n.Node] = true
		external, err := nodeview.ExternalOf(&e, n)
		if err != nil {
			field, _, _ := strings.Cut(err.Error(), ":") // ips or vlans
			o.say(spec("nodes", i, field), err)
			continue
		}
		if err := external.ValidateTrunk(); err != nil {
			o.say(spec("nodes", i), err)
			continue
		}
		o.report.found.externals = append(o.report.found.externals, card{o, spec("nodes", i), external.External})
		families := make(map[bool]netip.Prefix)
		for at, p := range external.Addresses {
			if _, is := families[p.Addr().Is4()]; is {
				o.say(spec("nodes", i, "ips", at),
					fmt.Errorf("%s is the second address of its family, one each is possible", p.Addr()))
			}
			families[p.Addr().Is4()] = p
		}
	}
	return true
}

func weftConfig(o *object) bool {
	c, ok := typed[v1.WeftConfig](o, "weftconfigs")
	if !ok {
		return true
	}
	if c.Name != v1.WeftConfigName {
		// the text of the schema's rule
		o.say(yamltext.Path{"metadata", "name"}, errors.New("the only WeftConfig is named default"))
	}
	if a := c.Spec.Addresses; a.LowWater != nil && a.HighWater != nil && *a.HighWater < *a.LowWater {
		// the text of the schema's rule
		o.say(spec("addresses", "highWater"), errors.New("highWater is below lowWater"))
	}
	return true
}

// definition validates a NetworkAttachmentDefinition of Weft.
func definition(o *object) bool {
	config := o.text("spec", "config")
	d, err := pod.ParseDefinition(config)
	if config == "" || errors.Is(err, pod.ErrOtherPlugin) {
		return false
	}
	name := o.namespace() + "/" + o.name()
	o.report.found.add("NetworkAttachmentDefinition", name)
	if err != nil {
		o.say(spec("config"), pod.Errorf(pod.CodeInvalidAnnotation, "%w", err))
		return true
	}
	o.report.found.defines(name, d)
	o.report.found.asksForNetwork(o, spec("config"), d.Network)
	return true
}
