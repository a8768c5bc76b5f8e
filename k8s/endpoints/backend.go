package endpoints

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
)

// MainInterface is the interface with the addresses in a pod's status.
const MainInterface = "eth0"

// ErrHostNetwork means that a pod in its node's network namespace has no interface of its own.
var ErrHostNetwork = errors.New("it is in the network of its node")

// group is endpoints of one family with the same ports.
type group struct {
	family    discovery.AddressType
	ports     []discovery.EndpointPort
	endpoints []discovery.Endpoint
}

// groupsOf makes the endpoints of a Service, and says which pods cannot be endpoints and why.
func groupsOf(s *corev1.Service, pods []*corev1.Pod) (groups []group, faults []string) {
	for _, p := range pods {
		if isOver(p) || len(p.Status.PodIPs) == 0 {
			continue
		}
		addresses, err := addressesOf(p)
		switch {
		case errors.Is(err, networkstatus.ErrNone) && !isReady(p): // it will be written
		case err != nil:
			faults = append(faults, fmt.Sprintf("pod %s: %v", p.Name, err))
		case !hasAny(addresses, s):
			faults = append(faults,
				fmt.Sprintf("pod %s: its interface %s has no address of %v", p.Name, interfaceOf(p), s.Spec.IPFamilies))
		}
		for _, family := range families(s) {
			if i := slices.IndexFunc(addresses, isOf(family)); i >= 0 {
				groups = add(groups, group{family, portsOf(s, p), []discovery.Endpoint{endpointOf(s, p, addresses[i])}})
			}
		}
	}
	return groups, faults
}

// add adds a group with one endpoint.
func add(groups []group, one group) []group {
	i := slices.IndexFunc(groups, func(g group) bool {
		return g.family == one.family && equality.Semantic.DeepEqual(g.ports, one.ports)
	})
	if i < 0 {
		return append(groups, one)
	}
	groups[i].endpoints = append(groups[i].endpoints, one.endpoints...)
	return groups
}

func isOver(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func interfaceOf(p *corev1.Pod) string {
	return cmp.Or(p.Annotations[pod.AnnotationEndpoint], MainInterface)
}

// addressesOf returns the addresses at which a pod serves.
func addressesOf(p *corev1.Pod) (addresses []netip.Addr, err error) {
	switch name := interfaceOf(p); {
	case name == MainInterface:
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				addresses = append(addresses, a)
			}
		}
	case p.Spec.HostNetwork: // only its annotation has addresses
		err = ErrHostNetwork
	default:
		addresses, err = networkstatus.AddressesOn(p.Annotations, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", pod.AnnotationEndpoint, interfaceOf(p), err)
	}
	// The API server accepts only these as endpoints.
	return slices.DeleteFunc(addresses, func(a netip.Addr) bool { return !a.IsGlobalUnicast() }), nil
}

// families lists the address families of a Service. The API server sets them except for type ExternalName.
func families(s *corev1.Service) []discovery.AddressType {
	var list []discovery.AddressType
	for _, f := range s.Spec.IPFamilies {
		list = append(list, discovery.AddressType(f))
	}
	return list
}

func isOf(family discovery.AddressType) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return a.Is4() == (family == discovery.AddressTypeIPv4) }
}

func hasAny(addresses []netip.Addr, s *corev1.Service) bool {
	return slices.ContainsFunc(families(s), func(f discovery.AddressType) bool {
		return slices.ContainsFunc(addresses, isOf(f))
	})
}

// endpointOf describes a pod like the controller of Kubernetes, without the zone, which is on the Node.
func endpointOf(s *corev1.Service, p *corev1.Pod, address netip.Addr) discovery.Endpoint {
	serving := isReady(p)
	terminating := p.DeletionTimestamp != nil
	ready := s.Spec.PublishNotReadyAddresses || serving && !terminating
	e := discovery.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discovery.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		e.NodeName = &p.Spec.NodeName
	}
	if p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name {
		e.Hostname = &p.Spec.Hostname
	}
	return e
}

// portsOf returns the ports at which a pod serves, without named ports that the pod does not have.
func portsOf(s *corev1.Service, p *corev1.Pod) []discovery.EndpointPort {
	var ports []discovery.EndpointPort
	for i := range s.Spec.Ports {
		of := &s.Spec.Ports[i]
		if port, has := target(of, p); has {
			ports = append(ports, discovery.EndpointPort{
				Name:        &of.Name,
				Protocol:    &of.Protocol,
				Port:        &port,
				AppProtocol: of.AppProtocol,
			})
		}
	}
	return ports
}

// target returns the port of a pod for a port of a Service.
func target(of *corev1.ServicePort, p *corev1.Pod) (port int32, has bool) {
	if of.TargetPort.Type == intstr.Int {
		return of.TargetPort.IntVal, true
	}
	containers := p.Spec.Containers
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(slices.Clip(containers), c)
		}
	}
	for _, c := range containers {
		for _, listens := range c.Ports {
			if listens.Name == of.TargetPort.StrVal && listens.Protocol == of.Protocol {
				return listens.ContainerPort, true
			}
		}
	}
	return 0, false
}
