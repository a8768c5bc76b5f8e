package policies

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// mainInterface is how container runtimes of kubelet name the main interface.
const mainInterface = "eth0"

// podOf converts a pod. Of a pod of this node, Weft knows its own interfaces before the API server does.
func (p *Policies) podOf(o *corev1.Pod, attachments []*pod.Attachment) policy.Pod {
	is := policy.Pod{
		ID:     policy.ID{Namespace: o.Namespace, Name: o.Name},
		Labels: o.Labels,
		Ports:  namedPortsOf(o),
		Local:  len(attachments) > 0,
	}
	interfaces := make(map[string]policy.Interface)
	for _, i := range append(p.announced(o), p.statusOf(o)) {
		interfaces[i.Name] = i
	}
	for _, i := range p.ownInterfaces(attachments) {
		interfaces[i.Name] = i
	}
	for _, name := range slices.Sorted(maps.Keys(interfaces)) {
		is.Interfaces = append(is.Interfaces, interfaces[name])
	}
	return is
}

// namedPortsOf lists the named ports of a pod that were kept (keptPorts).
func namedPortsOf(o *corev1.Pod) []policy.NamedPort {
	var ports []policy.NamedPort
	for _, c := range slices.Concat(o.Spec.Containers, o.Spec.InitContainers) {
		for _, port := range c.Ports {
			protocol, err := policy.ParseProtocol(string(port.Protocol))
			isValid := err == nil && port.ContainerPort > 0 && port.ContainerPort <= 65535
			if !isValid {
				continue
			}
			ports = append(ports, policy.NamedPort{
				Name:     port.Name,
				Protocol: protocol,
				Port:     uint16(port.ContainerPort),
			})
		}
	}
	return ports
}

// interfaceOf converts an interface of Weft.
func interfaceOf(a *pod.Attachment, i pod.Interface) policy.Interface {
	out := policy.Interface{
		Name: i.Name,
		Main: i.Network == "" && i.Name == a.Key.IfName && (a.Mode == "" || a.Mode == pod.ModePrimary) &&
			i.Name == mainInterface,
	}
	if i.Definition != "" {
		out.Networks = append(out.Networks, i.Definition)
	}
	network := i.Network
	if network == "" {
		network = policy.DefaultNetwork
	}
	out.Networks = append(out.Networks, network)
	for _, p := range i.Addresses {
		out.Addresses = append(out.Addresses, p.Addr())
	}
	return out
}

// ownInterfaces lists the interfaces of attachments. Addresses that Weft did not give are claimed: the pod's owner may
// have chosen them.
func (p *Policies) ownInterfaces(attachments []*pod.Attachment) []policy.Interface {
	var list []policy.Interface
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			if i.Type == pod.TypeIPAM {
				continue
			}
			is := interfaceOf(a, i)
			if !p.networks.givesAddresses(i.Network) {
				is.Claimed = is.Addresses
				is.Addresses = nil
			}
			list = append(list, is)
		}
	}
	return list
}
