package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weftnet/weft/test/netns"
)

// ifName is the main interface of every pod.
const ifName = "eth0"

// Pod is a sandbox as a runtime makes it: a network namespace with nothing but lo.
type Pod struct {
	Name        string
	ContainerID string
	Netns       string // path
}

// NewPod makes a sandbox for the pod of that name.
func (n *Node) NewPod(name string) (*Pod, error) {
	path := filepath.Join(n.pods(), name)
	if err := netns.Make(path); err != nil {
		return nil, err
	}
	id := sha256.Sum256([]byte(n.Dir + name))
	return &Pod{Name: name, ContainerID: hex.EncodeToString(id[:]), Netns: path}, nil
}

// Remove takes the sandbox away.
func (p *Pod) Remove() error { return netns.Remove(p.Netns) }

func (p *Pod) conf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.ContainerID, NetNS: p.Netns, IfName: ifName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "demo"}, {"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID}, {"K8S_POD_UID", p.ContainerID[:32]},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
	}
}

// Addresses are those of a result.
func Addresses(r *types100.Result) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, ip := range r.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("read the result: %v is no address", ip.Address)
		}
		addresses = append(addresses, a.Unmap())
	}
	return addresses, nil
}
