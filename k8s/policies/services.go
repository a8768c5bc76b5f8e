package policies

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/policy"
)

// byService is the index of EndpointSlices by "namespace/name" of their Service.
const byService = "service"

// watchServices adds the informers of Services and their endpoints.
func (p *Policies) watchServices() {
	c := p.config.Client
	p.services = informer.Add(p.watches, "services", c.Services(""), informer.Options[*corev1.Service]{
		Lighten: lightenService, Changed: p.on(p.refreshService),
	})
	p.slices = informer.Add(p.watches, "endpoint slices", c.EndpointSlices(""), informer.Options[*discoveryv1.EndpointSlice]{
		Labels: discoveryv1.LabelServiceName, Lighten: lightenSlice,
	})
	p.slices.Index(byService, func(o *discoveryv1.EndpointSlice) []string { return []string{serviceOf(o)} })
	p.slices.OnObject(func(o *discoveryv1.EndpointSlice) { p.on(p.refreshService)(serviceOf(o)) })
}

func serviceOf(o *discoveryv1.EndpointSlice) string {
	return o.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName]
}

// foreignProxy are the labels of Services that kube-proxy ignores: their addresses are not replaced by endpoints.
var foreignProxy = []string{"service.kubernetes.io/service-proxy-name", corev1.IsHeadlessService}

// isTranslated reports whether kube-proxy replaces the addresses of a Service by its endpoints. If it does not, a rule for these addresses
// would let pods contact whatever has them: any user who may create Services chooses the external IPs.
func isTranslated(o *corev1.Service) bool {
	return !slices.ContainsFunc(foreignProxy, func(label string) bool { _, has := o.Labels[label]; return has })
}

func lightenService(o *corev1.Service) *corev1.Service {
	light := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}
	for _, label := range foreignProxy {
		if value, has := o.Labels[label]; has {
			metav1.SetMetaDataLabel(&light.ObjectMeta, label, value)
		}
	}
	light.Spec.ClusterIPs, light.Spec.ExternalIPs, light.Spec.Ports = o.Spec.ClusterIPs, o.Spec.ExternalIPs, o.Spec.Ports
	light.Status.LoadBalancer = o.Status.LoadBalancer
	return light
}

func lightenSlice(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	light := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]},
	}}
	light.Ports = o.Ports
	for _, e := range o.Endpoints {
		light.Endpoints = append(light.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses})
	}
	return light
}

// refreshService gives the current state of a Service to the engine.
func (p *Policies) refreshService(key string) {
	o, known := p.services.One(key)
	if !known || !isTranslated(o) {
		p.engine.DeleteService(key)
		return
	}
	s := policy.Service{Name: key}
	addresses := slices.Concat(o.Spec.ClusterIPs, o.Spec.ExternalIPs) // the cluster IPs come first
	for _, i := range o.Status.LoadBalancer.Ingress {
		// kube-proxy does not replace the address of a load balancer of mode Proxy: the packets go to the load balancer itself.
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeProxy {
			addresses = append(addresses, i.IP)
		}
	}
	endpoints := p.slices.ByIndex(byService, key)
	for n, text := range addresses {
		a, err := policy.ParseAddress(text)
		if err != nil {
			continue // "None", or a load balancer with a name only
		}
		for _, port := range o.Spec.Ports {
			protocol, err := policy.ParseProtocol(string(port.Protocol))
			if err != nil || port.Port < 1 || port.Port > 65535 {
				continue
			}
			f := policy.Frontend{Address: a, Protocol: protocol, Port: uint16(port.Port), External: n >= len(o.Spec.ClusterIPs)}
			f.Backends = backendsOf(endpoints, port.Name, a.Is4())
			s.Frontends = append(s.Frontends, f)
		}
	}
	p.engine.SetService(s)
}

// backendsOf lists the endpoints of a port of one family, in order.
func backendsOf(endpoints []*discoveryv1.EndpointSlice, port string, is4 bool) []netip.AddrPort {
	var list []netip.AddrPort
	for _, o := range endpoints {
		for _, x := range o.Ports {
			name := ""
			if x.Name != nil {
				name = *x.Name
			}
			if name != port || x.Port == nil || *x.Port < 1 || *x.Port > 65535 {
				continue
			}
			for _, a := range endpointAddresses(o, is4) {
				list = append(list, netip.AddrPortFrom(a, uint16(*x.Port)))
			}
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// endpointAddresses lists the addresses of one family in a slice of endpoints.
func endpointAddresses(o *discoveryv1.EndpointSlice, is4 bool) (list []netip.Addr) {
	for _, e := range o.Endpoints {
		for _, text := range e.Addresses {
			if a, err := policy.ParseAddress(text); err == nil && a.Is4() == is4 {
				list = append(list, a)
			}
		}
	}
	return list
}
