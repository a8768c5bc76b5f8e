package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
)

// ifName is the main interface of every pod.
const ifName = "eth0"

// customInterfaces is the annotation that asks for extra interfaces. Where the dataplane has no taps a veth stands in for one.
const customInterfaces = "contivpp.io/custom-if"

// namespace is that of every pod, unless it says another one.
const namespace = "demo"

// Pod is a sandbox as a runtime makes it: a network namespace with nothing but lo.
type Pod struct {
	Name        string
	Namespace   string // of Kubernetes; "" = demo
	UID         string // of Kubernetes; "" = made of the container's id
	ContainerID string
	Netns       string            // path
	Annotations map[string]string // as they are given to plugins
}

// NewPod makes a sandbox for the pod of that name.
func (n *Node) NewPod(name string) (*Pod, error) {
	return n.newSandbox(name, name)
}

// NewSandbox makes another sandbox for a pod that has one already, or had one. Each has a name of its own.
func (n *Node) NewSandbox(of *Pod, name string) (*Pod, error) {
	p, err := n.newSandbox(of.Name, name)
	if err != nil {
		return nil, err
	}
	p.Namespace, p.UID, p.Annotations = of.Namespace, of.uid(), of.Annotations
	return p, nil
}

func (n *Node) newSandbox(pod, name string) (*Pod, error) {
	path := filepath.Join(n.Pods(), name)
	if err := netns.Make(path); err != nil {
		return nil, err
	}
	id := sha256.Sum256([]byte(n.Dir + name))
	return &Pod{Name: pod, ContainerID: hex.EncodeToString(id[:]), Netns: path}, nil
}

func (p *Pod) uid() string { return cmp.Or(p.UID, p.ContainerID[:32]) }

// Remove takes the sandbox away.
func (p *Pod) Remove() error { return netns.Remove(p.Netns) }

func (p *Pod) conf() *libcni.RuntimeConf {
	annotations := map[string]string{}
	maps.Copy(annotations, p.Annotations)
	if extra := annotations[customInterfaces]; extra != "" {
		annotations[customInterfaces] = dataplane.CustomInterfaces(extra)
	}
	return &libcni.RuntimeConf{
		ContainerID: p.ContainerID, NetNS: p.Netns, IfName: ifName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", cmp.Or(p.Namespace, namespace)}, {"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID}, {"K8S_POD_UID", p.uid()},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": annotations},
	}
}

// Link is one interface of a result, with what belongs to it.
type Link struct {
	*types100.Interface
	Addresses []netip.Prefix
	Gateways  []netip.Addr // of the addresses, in their order; the zero address where there is none
}

// Links are the interfaces of a result that the pod has, in its order.
func Links(r *types100.Result) ([]Link, error) {
	var links []Link
	for _, i := range r.Interfaces {
		links = append(links, Link{Interface: i})
	}
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(links) {
			return nil, fmt.Errorf("read the result: %v is of no interface", ip.Address)
		}
		address, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return nil, fmt.Errorf("read the result: %w", err)
		}
		gateway, _ := netip.AddrFromSlice(ip.Gateway)
		l := &links[*ip.Interface]
		l.Addresses, l.Gateways = append(l.Addresses, address), append(l.Gateways, gateway.Unmap())
	}
	return slices.DeleteFunc(links, func(l Link) bool { return l.Sandbox == "" }), nil
}

// Bare are the addresses of a link, without the lengths of their prefixes.
func (l Link) Bare() []netip.Addr {
	var addresses []netip.Addr
	for _, p := range l.Addresses {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}
