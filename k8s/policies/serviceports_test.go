package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weftnet/weft/policy"
)

// The API server stores Services and EndpointSlices of 20,000 ports, and ADDs wait while a Service is refreshed. So
// each port of a slice is read once, and not for each port of the Service, family and kind of address.
func TestPortsOfASliceAreReadOnce(t *testing.T) {
	const ports = 20_000
	o := &discoveryv1.EndpointSlice{}
	for n := range ports {
		name := fmt.Sprintf("p%d", n)
		number := int32(n + 1)
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}
	e := newEndpoints(false)
	e.add(sliceEndpoints{object: o, hasReady: true, ready: []netip.Addr{netip.MustParseAddr("10.1.0.5")}})
	o.Ports = nil // what reads them again finds none
	for n := range ports {
		name := fmt.Sprintf("p%d", n)
		first := e.backendsOf(name)
		if len(first) != 1 || int(first[0].Port) != n+1 || len(first[0].Addresses) != 1 {
			t.Fatalf("the backends of port %s are %v", name, first)
		}
		if again := e.backendsOf(name); &again[0] != &first[0] {
			t.Fatalf("the backends of port %s are made twice", name)
		}
	}
	if len(e.sets) != 1 {
		t.Errorf("%d sets of addresses for ports of one slice", len(e.sets))
	}
}

// Ports of several slices may have one name with several numbers, and one number may be in several slices.
func TestBackendsOfAPortAreThoseOfItsNameInAllSlices(t *testing.T) {
	port := func(name string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number}
	}
	of := func(address string, ports ...discoveryv1.EndpointPort) sliceEndpoints {
		return sliceEndpoints{
			object:   &discoveryv1.EndpointSlice{Ports: ports},
			hasReady: true,
			ready:    []netip.Addr{netip.MustParseAddr(address)},
		}
	}
	unnamed := int32(53)
	e := newEndpoints(false)
	e.add(of("10.1.0.5", port("web", 8080), port("no", 0), port("dns", 53)))
	e.add(of("10.1.0.6", port("web", 8081), port("no", 70000)))
	e.add(of("10.1.0.7", port("web", 8080), discoveryv1.EndpointPort{Name: nil, Port: &unnamed},
		discoveryv1.EndpointPort{}))
	for name, want := range map[string]string{
		"web": "[{[10.1.0.5 10.1.0.7] 8080} {[10.1.0.6] 8081}]", "dns": "[{[10.1.0.5] 53}]", "": "[{[10.1.0.7] 53}]",
		"no": "[]", "other": "[]",
	} {
		if got := fmt.Sprint(e.backendsOf(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// Each port may be served by slices of its own, so the sets of addresses grow by the product of ports and endpoints.
func TestServiceWithTooManyEndpointsIsNotReadPortByPort(t *testing.T) {
	const (
		ports         = 100
		slicesOfPorts = 10
		each          = 500
	)
	var objects [slicesOfPorts]discoveryv1.EndpointSlice
	for n := range ports {
		name := fmt.Sprintf("p%d", n)
		number := int32(n + 1)
		for k := range objects {
			if (n+1)>>(k%7)&1 == 1 {
				objects[k].Ports = append(objects[k].Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
			}
		}
	}
	e := newEndpoints(false)
	for k := range objects {
		of := sliceEndpoints{object: &objects[k], hasReady: true}
		for n := range each {
			of.ready = append(of.ready, netip.AddrFrom4([4]byte{10, byte(k), byte(n >> 8), byte(n)}))
		}
		e.add(of)
	}
	for n := range ports {
		e.backendsOf(fmt.Sprintf("p%d", n))
	}
	kept := 0
	for _, set := range e.sets {
		kept += len(set)
	}
	if kept > policy.MaxEndpoints || e.unread() <= policy.MaxEndpoints || e.unread() > 2*policy.MaxEndpoints {
		t.Errorf("%d addresses are kept, %d endpoints were too many", kept, e.unread())
	}
}

// ADDs wait while the endpoints of a Service are read.
func TestEndpointsOfALargeServiceAreCountedOnly(t *testing.T) {
	usable := discoveryv1.Endpoint{}
	not := discoveryv1.Endpoint{}
	no := false
	not.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
	for range 100 {
		usable.Addresses = append(usable.Addresses, "10.1.0.5")
	}
	not.Addresses = usable.Addresses
	large := &discoveryv1.EndpointSlice{
		Endpoints: slices.Repeat([]discoveryv1.Endpoint{usable, not}, policy.MaxEndpoints/100),
	}
	if n := numberOfEndpoints([]*discoveryv1.EndpointSlice{large}); n != policy.MaxEndpoints/100*100 {
		t.Errorf("%d endpoints", n)
	}
	for _, slicesOf := range []int{1, 2} {
		all := readEndpoints(slices.Repeat([]*discoveryv1.EndpointSlice{large}, slicesOf), false,
			func(o *discoveryv1.EndpointSlice) [families]sliceEndpoints {
				if slicesOf > 1 {
					t.Error("the endpoints are read")
				}
				return [families]sliceEndpoints{{object: o}, {object: o}}
			})
		for f := range all {
			if (all[f].unread() > policy.MaxEndpoints) != (slicesOf > 1) {
				t.Errorf("%d slices: %d endpoints are not read", slicesOf, all[f].unread())
			}
		}
	}
}
