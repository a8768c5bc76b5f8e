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

// Indexes of EndpointSlices.
const (
	byService = "service" // by "namespace/name" of their Service
	byPod     = "pod"     // by the UIDs of the pods of their endpoints
)

// serviceFeed gives the engine the Services with the endpoints that kube-proxy may choose.
type serviceFeed struct {
	watch            *informer.Informer[*corev1.Service]
	slices           *informer.Informer[*discoveryv1.EndpointSlice]
	engine           *policy.Engine
	departed         departed
	trustExternalIPs bool
}

func newServiceFeed(s *shared) *serviceFeed {
	c := s.config.Client
	f := &serviceFeed{engine: s.engine, trustExternalIPs: s.config.TrustExternalIPs}
	f.watch = informer.Add(s.watches, "services", c.Services(""), informer.Options[*corev1.Service]{
		Lighten: lightenService, Changed: s.on(f.refresh),
	})
	f.slices = informer.Add(s.watches, "endpoint slices", c.EndpointSlices(""),
		informer.Options[*discoveryv1.EndpointSlice]{
			Labels: discoveryv1.LabelServiceName, Lighten: lightenSlice,
		})
	f.slices.Index(byService, func(o *discoveryv1.EndpointSlice) []string { return []string{serviceOf(o)} })
	f.slices.Index(byPod, podsOf)
	f.slices.OnGroup(serviceOf, s.on(f.refresh))
	return f
}

func serviceOf(o *discoveryv1.EndpointSlice) string {
	return o.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName]
}

// foreignProxy are the labels of Services that kube-proxy ignores: their addresses are not replaced by endpoints.
var foreignProxy = []string{"service.kubernetes.io/service-proxy-name", corev1.IsHeadlessService}

// isTranslated reports whether kube-proxy replaces the addresses of a Service by its endpoints. If it does not, a rule
// for these addresses would let pods contact whatever has them: any user who may create Services chooses the external
// IPs.
func isTranslated(o *corev1.Service) bool {
	return !slices.ContainsFunc(foreignProxy, func(label string) bool { _, has := o.Labels[label]; return has })
}

func lightenService(o *corev1.Service) *corev1.Service {
	light := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       o.Namespace,
			Name:            o.Name,
			UID:             o.UID,
			ResourceVersion: o.ResourceVersion,
		},
	}
	for _, label := range foreignProxy {
		if value, has := o.Labels[label]; has {
			metav1.SetMetaDataLabel(&light.ObjectMeta, label, value)
		}
	}
	light.Spec.ClusterIPs = o.Spec.ClusterIPs
	light.Spec.ExternalIPs = o.Spec.ExternalIPs
	light.Spec.Ports = o.Spec.Ports
	light.Spec.InternalTrafficPolicy = o.Spec.InternalTrafficPolicy
	light.Spec.ExternalTrafficPolicy = o.Spec.ExternalTrafficPolicy
	light.Status.LoadBalancer = o.Status.LoadBalancer
	return light
}

// refresh gives the current state of a Service to the engine.
func (f *serviceFeed) refresh(key string) {
	o, known := f.watch.One(key)
	if !known || !isTranslated(o) {
		f.engine.DeleteService(key)
		return
	}
	s := policy.Service{Name: key}
	endpoints := f.endpointsOf(o)
	for _, group := range f.addressesOf(o) {
		for _, port := range o.Spec.Ports {
			protocol, err := policy.ParseProtocol(string(port.Protocol))
			if err != nil || port.Port < 1 || port.Port > 65535 {
				continue
			}
			s.Frontends = append(s.Frontends, policy.Frontend{
				Addresses: group.addresses, External: group.isExternal, Protocol: protocol, Port: uint16(port.Port),
				Backends: endpoints[group.family()].backendsOf(port.Name),
			})
		}
	}
	for _, of := range endpoints {
		s.Unread = max(s.Unread, of.unread())
	}
	if len(s.Frontends) == 0 { // headless: rules do not mention it
		s.Unread = 0
	}
	if s.Unread > 0 {
		for n := range s.Frontends {
			s.Frontends[n].Backends = nil
		}
	}
	f.engine.SetService(s)
}

// addressGroup are addresses of a Service of one family.
type addressGroup struct {
	isExternal bool
	addresses  []netip.Addr
}

func (g *addressGroup) family() family { return familyOf(g.addresses[0]) }

// addressesOf lists the addresses of a Service that the API server or a controller assigned. The external IPs
// are its owner's choice, and any user who may create Services could make an address denied for others: these count
// only if the administrator says so.
func (f *serviceFeed) addressesOf(o *corev1.Service) []addressGroup {
	var groups [2 * families]addressGroup
	add := func(text string, isExternal bool) {
		a, err := policy.ParseAddress(text)
		if err != nil { // "None", or a load balancer with a name only
			return
		}
		at := int(familyOf(a))
		if isExternal {
			at += families
		}
		groups[at].isExternal = isExternal
		groups[at].addresses = append(groups[at].addresses, a)
	}
	for _, text := range o.Spec.ClusterIPs {
		add(text, false)
	}
	if f.trustExternalIPs {
		for _, text := range o.Spec.ExternalIPs {
			add(text, true)
		}
	}
	for _, i := range o.Status.LoadBalancer.Ingress {
		// kube-proxy does not replace the address of a load balancer of mode Proxy: the packets go to the load balancer
		// itself.
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeProxy {
			add(i.IP, true)
		}
	}
	var list []addressGroup
	for _, g := range groups {
		slices.SortFunc(g.addresses, netip.Addr.Compare)
		g.addresses = slices.Compact(g.addresses)
		if len(g.addresses) > 0 {
			list = append(list, g)
		}
	}
	return list
}
