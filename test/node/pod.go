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

// ifName is the name of every pod's main interface.
const ifName = "eth0"

// customInterfaces is the annotation for extra interfaces. Where the dataplane has no taps, veths replace them.
const customInterfaces = "contivpp.io/custom-if"

// namespace is the default Kubernetes namespace of pods.
const namespace = "demo"

// Pod is a sandbox as a runtime makes it: a network namespace with only lo.
type Pod struct {
	Name        string
	Namespace   string // Kubernetes namespace; "" = demo
	UID         string // Kubernetes UID; "" = derived from the container id
	ContainerID string
	Netns       string            // path
	Annotations map[string]string // given to plugins
}

// NewPod makes a sandbox for a new pod.
func (n *Node) NewPod(name string) (*Pod, error) {
	return n.newSandbox(name, name)
}

// NewSandbox makes another sandbox for an existing or former pod. Each sandbox has a name of its own.
func (n *Node) NewSandbox(of *Pod, name string) (*Pod, error) {
	p, err := n.newSandbox(of.Name, name)
	if err != nil {
		return nil, err
	}
	p.Namespace = of.Namespace
	p.UID = of.uid()
	p.Annotations = of.Annotations
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

// Remove removes the sandbox.
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

// Link is one interface of a result with its addresses, gateways and routes.
type Link struct {
	*types100.Interface
	Addresses []netip.Prefix
	Gateways  []netip.Addr // of the addresses, in their order; the zero address = none
}

// Links returns the pod's interfaces of a result, in its order.
func Links(r *types100.Result) ([]Link, error) {
	var links []Link
	for _, i := range r.Interfaces {
		links = append(links, Link{Interface: i})
	}
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(links) {
			return nil, fmt.Errorf("read the result: %v has no interface", ip.Address)
		}
		address, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return nil, fmt.Errorf("read the result: %w", err)
		}
		gateway, _ := netip.AddrFromSlice(ip.Gateway)
		l := &links[*ip.Interface]
		l.Addresses = append(l.Addresses, address)
		l.Gateways = append(l.Gateways, gateway.Unmap())
	}
	return slices.DeleteFunc(links, func(l Link) bool { return l.Sandbox == "" }), nil
}

// Bare returns the addresses of a link without the prefix lengths.
func (l Link) Bare() []netip.Addr {
	var addresses []netip.Addr
	for _, p := range l.Addresses {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}
