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
	is := policy.Pod{ID: policy.ID{Namespace: o.Namespace, Name: o.Name}, Labels: o.Labels, Local: len(attachments) > 0}
	for _, list := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				protocol, err := policy.ParseProtocol(string(port.Protocol))
				if err == nil && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
					is.Ports = append(is.Ports, policy.NamedPort{Name: port.Name, Protocol: protocol, Port: uint16(port.ContainerPort)})
				}
			}
		}
	}
	interfaces := make(map[string]policy.Interface)
	for _, i := range append(p.announced(o), statusOf(o)) {
		interfaces[i.Name] = i
	}
	for _, i := range ownInterfaces(attachments) {
		interfaces[i.Name] = i
	}
	for _, name := range slices.Sorted(maps.Keys(interfaces)) {
		is.Interfaces = append(is.Interfaces, interfaces[name])
	}
	return is
}

// statusOf returns the main interface of a pod as its kubelet reports it.
func statusOf(o *corev1.Pod) policy.Interface {
	return policy.Interface{Name: mainInterface, Main: true, Networks: []string{policy.DefaultNetwork}, Addresses: podAddresses(o)}
}

// interfaceOf converts an interface of Weft.
func interfaceOf(a *pod.Attachment, i pod.Interface) policy.Interface {
	out := policy.Interface{
		Name: i.Name, Main: i.Network == "" && i.Name == a.Key.IfName && (a.Mode == "" || a.Mode == pod.ModePrimary) && i.Name == mainInterface,
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

// ownInterfaces lists the interfaces of attachments.
func ownInterfaces(attachments []*pod.Attachment) []policy.Interface {
	var list []policy.Interface
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			if i.Type != pod.TypeIPAM {
				list = append(list, interfaceOf(a, i))
			}
		}
	}
	return list
}
