package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// PodCIDRs returns the node's ranges of pod addresses, IPv4 first; it waits until the node is registered and has them.
func (n *Node) PodCIDRs(ctx context.Context) (ranges []netip.Prefix, err error) {
	err = Eventually(ctx, n.Name+" has addresses for pods", func(ctx context.Context) error {
		object, err := n.object(ctx)
		if err != nil {
			return err
		}
		if len(object.Spec.PodCIDRs) == 0 {
			return errors.New("kube-controller-manager has assigned none yet")
		}
		ranges = nil
		for _, text := range object.Spec.PodCIDRs {
			r, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			ranges = append(ranges, r)
		}
		return nil
	})
	return ranges, err
}

// AwaitReady waits until the node is ready for pods according to its running kubelet; a status from before a reboot
// does not count.
func (n *Node) AwaitReady(ctx context.Context) error {
	boot, err := n.BootID()
	if err != nil {
		return err
	}
	return Eventually(ctx, n.Name+" is ready", func(ctx context.Context) error {
		if err := n.Kubelet.Ended(); err != nil {
			return hopeless(err)
		}
		object, err := n.object(ctx)
		if err != nil {
			return err
		}
		if object.Status.NodeInfo.BootID != boot {
			return errors.New("its kubelet has not reported since the boot")
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return errors.New(condition.Message)
			}
		}
		for _, taint := range object.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return fmt.Errorf("the node has the taint %s", taint.Key)
			}
		}
		return nil
	})
}

// object returns the Node. If kubelet could not register it, the error has a line of kubelet's log.
func (n *Node) object(ctx context.Context) (*corev1.Node, error) {
	object, err := n.cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.New("its kubelet has not registered it")
	}
	return object, err
}

// kubeletHealth is the URL of kubelet's health endpoint on its machine.
const kubeletHealth = "http://127.0.0.1:10248/healthz"

// AwaitKubelet waits until the node's kubelet reports that it is healthy.
func (n *Node) AwaitKubelet(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.Dial}}
	return Eventually(ctx, "kubelet is healthy on "+n.Name, func(ctx context.Context) error {
		if err := n.Kubelet.Ended(); err != nil {
			return hopeless(err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, kubeletHealth, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", response.Status)
		}
		return nil
	})
}

// AwaitDevices waits until the node's kubelet has healthy devices of a resource. A restarted kubelet has none until
// their plugin registers, and until then rejects pods that need one for good (UnexpectedAdmissionError).
func (n *Node) AwaitDevices(ctx context.Context, resource string) error {
	return Eventually(ctx, "kubelet has "+resource+" on "+n.Name, func(ctx context.Context) error {
		conn, err := grpc.NewClient("passthrough:kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return n.Dial(ctx, "unix", "/var/lib/kubelet/pod-resources/kubelet.sock")
			}))
		if err != nil {
			return err
		}
		defer conn.Close()
		resp, err := podresources.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx,
			&podresources.AllocatableResourcesRequest{})
		if err != nil {
			return err
		}
		for _, d := range resp.GetDevices() {
			if d.GetResourceName() == resource && len(d.GetDeviceIds()) > 0 {
				return nil
			}
		}
		return errors.New("no healthy devices")
	})
}

// Dial connects to an address, from the node.
func (n *Node) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
