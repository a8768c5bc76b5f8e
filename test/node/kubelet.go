package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weftnet/weft/devicemanager/kubelettest"
)

// Memif is the resource name of memifs.
const Memif = "contivpp.io/memif"

// startKubelet starts a kubelet with one pod: an empty list of pods means that kubelet has just started.
func (n *Node) startKubelet() (err error) {
	if n.Kubelet, err = kubelettest.Start(n.kubelet()); err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	proxy := kubelettest.Pod{
		Namespace:  "kube-system",
		Name:       "kube-proxy",
		Containers: []kubelettest.Container{{Name: "kube-proxy"}},
	}
	_, err = n.Kubelet.Admit(context.Background(), Memif, proxy)
	return err
}

// Admit does what kubelet does for a pod before the runtime makes its sandbox: it allocates the memifs of each
// container's limits. It waits until the agent has registered its devices.
func (n *Node) Admit(
	ctx context.Context, p *Pod, containers ...kubelettest.Container,
) ([]kubelettest.Container, error) {
	if n.Kubelet == nil {
		return nil, errors.New("the node has no kubelet")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := n.Kubelet.Await(ctx, Memif, n.options.Memifs); err != nil {
		return nil, fmt.Errorf("wait for devices: %w", err)
	}
	return n.Kubelet.Admit(ctx, Memif, kubelettest.Pod{
		Namespace: cmp.Or(p.Namespace, namespace), Name: p.Name, Containers: containers,
	})
}

// Forget removes an ended pod from kubelet.
func (n *Node) Forget(p *Pod) bool {
	return n.Kubelet.Remove(cmp.Or(p.Namespace, namespace), p.Name)
}
