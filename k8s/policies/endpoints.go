package policies

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/policy"
)

// The watches of pods and of EndpointSlices have no common order. While they disagree:
//
//   - An endpoint counts although no watch has shown its pod yet: the rules about its address decide.
//   - An endpoint does not count if its pod has ended or was deleted, the pod had its address, and no known pod has
//     it now.
//
// So a pod that is gone does not deny a Service until its EndpointSlice changes, and an author of EndpointSlices cannot
// hide an endpoint.

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

// podOfEndpoint returns the UID of an endpoint's pod; "" if it is no pod.
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

// family is an address family, as an index.
type family int

// families is the number of address families.
const families = 2

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 0
	}
	return 1
}

// endpoints are the endpoints of a Service of one family. A Service may have thousands of ports and of endpoints, and
// ADDs wait for its refresh: each address and each port of a slice is read once, and ports of the same slices share a
// set of addresses.
type endpoints struct {
	slices  []sliceEndpoints
	isLocal bool                         // a node may send connections to its own endpoints only
	ports   map[string][]servedPort      // of all slices, by name
	sets    map[string][]netip.Addr      // by the slices of a port
	found   map[string][]policy.Backends // by name of the port
	left    int                          // how many more endpoints of ports are read; less than 0: they are too many
}

// servedPort is a port of an EndpointSlice.
type servedPort struct {
	slice  int // index
	number uint16
}

func newEndpoints(isLocal bool) *endpoints {
	return &endpoints{
		isLocal: isLocal,
		ports:   make(map[string][]servedPort),
		sets:    make(map[string][]netip.Addr),
		found:   make(map[string][]policy.Backends),
		left:    policy.MaxEndpoints,
	}
}

// add adds a slice.
func (e *endpoints) add(of sliceEndpoints) {
	e.slices = append(e.slices, of)
	for _, x := range of.object.Ports {
		if number := ptr.Deref(x.Port, 0); number >= 1 && number <= 65535 {
			name := ptr.Deref(x.Name, "")
			e.ports[name] = append(e.ports[name], servedPort{slice: len(e.slices) - 1, number: uint16(number)})
		}
	}
}

// sliceEndpoints are the addresses in an EndpointSlice that kube-proxy may use. Those of pods that are gone are left
// out, but an endpoint that is ready keeps others that end out of use although its pod is gone.
type sliceEndpoints struct {
	object   *discoveryv1.EndpointSlice
	hasReady bool
	ready    []netip.Addr
	ending   []netip.Addr // they still serve
}

// endpointsOf returns the endpoints of a Service by family.
func (f *serviceFeed) endpointsOf(s *corev1.Service) [families]*endpoints {
	list := f.slices.ByIndex(byService, s.Namespace+"/"+s.Name)
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return readEndpoints(list, isLocal(s), f.endpointsIn)
}

// readEndpoints reads EndpointSlices, unless they have too many endpoints for one port already.
func readEndpoints(
	list []*discoveryv1.EndpointSlice, isLocal bool, read func(*discoveryv1.EndpointSlice) [families]sliceEndpoints,
) [families]*endpoints {
	var all [families]*endpoints
	for f := range all {
		all[f] = newEndpoints(isLocal)
	}
	if n := numberOfEndpoints(list); n > policy.MaxEndpoints {
		for f := range all {
			all[f].left -= n
		}
		return all
	}
	for _, o := range list {
		for f, of := range read(o) {
			all[f].add(of)
		}
	}
	return all
}

// numberOfEndpoints returns the number of addresses of endpoints that may be used.
func numberOfEndpoints(list []*discoveryv1.EndpointSlice) (n int) {
	for _, o := range list {
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			if isReady(e) || isEnding(e) {
				n += len(e.Addresses)
			}
		}
	}
	return n
}

func isReady(e *discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }

// isEnding reports whether an endpoint serves although its pod ends.
func isEnding(e *discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Serving, true) && ptr.Deref(e.Conditions.Terminating, false)
}

func (f *serviceFeed) endpointsIn(o *discoveryv1.EndpointSlice) [families]sliceEndpoints {
	found := [families]sliceEndpoints{{object: o}, {object: o}}
	for n := range o.Endpoints {
		e := &o.Endpoints[n]
		ready := isReady(e)
		if !ready && !isEnding(e) {
			continue
		}
		pod := podOfEndpoint(e)
		for _, text := range e.Addresses {
			a, err := policy.ParseAddress(text)
			if err != nil {
				continue
			}
			of := &found[familyOf(a)]
			of.hasReady = of.hasReady || ready
			isGone := f.departed.left(pod, a) && !f.engine.HasPodAt(a)
			switch {
			case isGone:
			case ready:
				of.ready = append(of.ready, a)
			default:
				of.ending = append(of.ending, a)
			}
		}
	}
	return found
}

// backendsOf lists the endpoints to which kube-proxy may send connections to a port of the Service, in order: those
// that are ready; without any, those that end and still serve. With a traffic policy Local each node chooses among its
// own ones. The ports of a Service may be served by any slices, so their combinations grow by the product: above a
// limit no list decides about the Service, and reading ends.
func (e *endpoints) backendsOf(port string) []policy.Backends {
	if list, isKnown := e.found[port]; isKnown {
		return list // of another kind of address of the Service
	}
	if e.left < 0 {
		return nil
	}
	withPort := make(map[uint16][]int) // by the number of the port, the slices that have it
	hasReady := false
	for _, x := range e.ports[port] {
		withPort[x.number] = append(withPort[x.number], x.slice)
		hasReady = hasReady || e.slices[x.slice].hasReady
	}
	var list []policy.Backends
	for _, number := range slices.Sorted(maps.Keys(withPort)) {
		withEnding := !hasReady || e.isLocal
		if !e.spend(withPort[number], withEnding) {
			return nil
		}
		if addresses := e.addresses(withPort[number], withEnding); len(addresses) > 0 {
			list = append(list, policy.Backends{Addresses: addresses, Port: number})
		}
	}
	e.found[port] = list
	return list
}

// spend counts the addresses of slices, those in several ones several times. It returns false if they are too many.
func (e *endpoints) spend(of []int, withEnding bool) bool {
	n := 0
	for _, slice := range of {
		n += len(e.slices[slice].ready)
		if withEnding {
			n += len(e.slices[slice].ending)
		}
	}
	e.left -= n
	return e.left >= 0
}

// unread returns the number of endpoints of ports up to that at which they were too many; 0: all were read.
func (e *endpoints) unread() int {
	if e.left >= 0 {
		return 0
	}
	return policy.MaxEndpoints - e.left
}

// addresses lists the addresses of slices, in order.
func (e *endpoints) addresses(of []int, withEnding bool) []netip.Addr {
	key := fmt.Sprint(of, withEnding)
	if known, has := e.sets[key]; has {
		return known
	}
	var list []netip.Addr
	for _, n := range of {
		list = append(list, e.slices[n].ready...)
		if withEnding {
			list = append(list, e.slices[n].ending...)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	e.sets[key] = list
	return list
}

// isLocal reports whether a node may send connections to its own endpoints only.
func isLocal(s *corev1.Service) bool {
	return ptr.Deref(s.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal ||
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// podChanged refreshes the Services that a pod concerns. o is a version of it.
func (f *serviceFeed) podChanged(o *corev1.Pod, isGone bool) {
	if !isGone {
		f.noteAddresses(o)
		return
	}
	if o.Spec.HostNetwork {
		return // it has the addresses of the node, which has them without the pod
	}
	f.departed.add(o.UID, podAddresses(o))
	f.noteAddresses(o) // it may have been the pod at the address of one that was gone before
	f.departed.sweep(func(uid types.UID) bool { return len(f.slices.ByIndex(byPod, string(uid))) > 0 })
}

// noteAddresses refreshes the Services with endpoints that were former pods with an address of a pod.
func (f *serviceFeed) noteAddresses(o *corev1.Pod) {
	concerned := make(map[string]struct{}) // a Service may have many slices
	for _, a := range podAddresses(o) {
		for uid := range f.departed.at[a] {
			for _, s := range f.slices.ByIndex(byPod, string(uid)) {
				concerned[serviceOf(s)] = struct{}{}
			}
		}
	}
	for key := range concerned {
		f.refresh(key)
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
