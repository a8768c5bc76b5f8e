package policies

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/policy"
)

// The watches of pods and of EndpointSlices have no common order. What is decided while they disagree:
//
//   - An endpoint counts although no watch has shown its pod yet: the rules about its address decide.
//   - An endpoint does not count if its pod has ended or was deleted, its address was that of the pod, and no known pod has it now.
//
// So a pod that is gone does not deny a Service until its EndpointSlice changes, and an author of EndpointSlices cannot hide an endpoint.

func lightenSlice(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	light := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]},
	}}
	light.Ports = o.Ports
	for _, e := range o.Endpoints {
		own := discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions}
		if uid := podOfEndpoint(&e); uid != "" {
			own.TargetRef = &corev1.ObjectReference{Kind: "Pod", UID: uid}
		}
		light.Endpoints = append(light.Endpoints, own)
	}
	return light
}

// podOfEndpoint returns the UID of an endpoint's pod; "" if it is none.
func podOfEndpoint(e *discoveryv1.Endpoint) types.UID {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return ""
	}
	return e.TargetRef.UID
}

// podsOf lists the UIDs of the pods of a slice.
func podsOf(o *discoveryv1.EndpointSlice) []string {
	var list []string
	for n := range o.Endpoints {
		if uid := podOfEndpoint(&o.Endpoints[n]); uid != "" {
			list = append(list, string(uid))
		}
	}
	return list
}

// backendsOf lists the endpoints of one family to which kube-proxy may send connections to a port of a Service, in order: those that are
// ready; without any, those that end and still serve. With a traffic policy Local each node chooses among its own ones.
func (p *Policies) backendsOf(s *corev1.Service, port string, is4 bool) []netip.AddrPort {
	var ready, ending []backend
	for _, o := range p.slices.ByIndex(byService, s.Namespace+"/"+s.Name) {
		for n := range o.Endpoints {
			e := &o.Endpoints[n]
			list := backendsAt(e, portsOf(o, port), is4)
			switch {
			case ptr.Deref(e.Conditions.Ready, true):
				ready = append(ready, list...)
			case ptr.Deref(e.Conditions.Serving, true) && ptr.Deref(e.Conditions.Terminating, false):
				ending = append(ending, list...)
			}
		}
	}
	all := ready
	if len(ready) == 0 || isLocal(s) {
		all = append(all, ending...)
	}
	var list []netip.AddrPort
	for _, b := range all {
		if !p.departed.left(b.pod, b.Addr()) || p.engine.HasPodAt(b.Addr()) {
			list = append(list, b.AddrPort)
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// backend is an address and port of an endpoint, with the UID of its pod.
type backend struct {
	netip.AddrPort

	pod types.UID
}

func backendsAt(e *discoveryv1.Endpoint, ports []uint16, is4 bool) []backend {
	var list []backend
	for _, text := range e.Addresses {
		a, err := policy.ParseAddress(text)
		if err != nil || a.Is4() != is4 {
			continue
		}
		for _, port := range ports {
			list = append(list, backend{netip.AddrPortFrom(a, port), podOfEndpoint(e)})
		}
	}
	return list
}

// portsOf lists the numbers of a slice's ports of a name.
func portsOf(o *discoveryv1.EndpointSlice, name string) []uint16 {
	var list []uint16
	for _, x := range o.Ports {
		number := ptr.Deref(x.Port, 0)
		if ptr.Deref(x.Name, "") == name && number >= 1 && number <= 65535 {
			list = append(list, uint16(number))
		}
	}
	return list
}

// isLocal reports whether a node may send connections to its own endpoints only.
func isLocal(s *corev1.Service) bool {
	return ptr.Deref(s.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal ||
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// refreshPod gives the current state of a pod to the engine, and what follows for Services. o is a version of the pod, which may be gone.
func (p *Policies) refreshPod(o *corev1.Pod) {
	p.refresh(policy.ID{Namespace: o.Namespace, Name: o.Name})
	now, known := p.pods.One(o.Namespace + "/" + o.Name)
	isGone := !known || now.UID != o.UID || hasEnded(now)
	if !isGone {
		p.noteAddresses(o)
		return
	}
	if o.Spec.HostNetwork || !p.departed.add(o.UID, podAddresses(o)) {
		return
	}
	p.refreshServicesOf(o.UID)
	p.departed.sweep(func(uid types.UID) bool { return len(p.slices.ByIndex(byPod, string(uid))) > 0 })
}

// noteAddresses refreshes the Services whose endpoints were pods that are gone and had an address of a pod.
func (p *Policies) noteAddresses(o *corev1.Pod) {
	for _, a := range podAddresses(o) {
		for uid := range p.departed.at[a] {
			p.refreshServicesOf(uid)
		}
	}
}

func (p *Policies) refreshServicesOf(uid types.UID) {
	for _, o := range p.slices.ByIndex(byPod, string(uid)) {
		p.refreshService(serviceOf(o))
	}
}

// podAddresses lists the addresses of a pod as its kubelet reports them.
func podAddresses(o *corev1.Pod) []netip.Addr {
	var list []netip.Addr
	for _, ip := range o.Status.PodIPs {
		if a, err := policy.ParseAddress(ip.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}
