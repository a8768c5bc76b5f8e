// Package preflight checks whether the nodes of a cluster meet the requirements of Weft.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/weftnet/weft/k8s/client"
)

// The oldest supported versions: admission policies need claims of tokens; the agent needs features of the kernel.
var (
	oldestKubelet = version.MustParseGeneric("1.30")
	oldestKernel  = version.MustParseGeneric("5.10")
)

var (
	architectures = []string{"amd64", "arm64"}
	runtimes      = []string{"containerd", "cri-o"}
)

// Wants are requirements that depend on the values of the chart.
type Wants struct {
	PodCIDRs  bool   // pods have addresses of their node's podCIDRs
	Hugepages string // size of the hugepages, as "2Mi"; "": none
	Amount    string // of hugepages, as "256Mi"
}

// Requirements returns what the nodes must have, one line each. The API server does not report the last ones.
func (w Wants) Requirements() (reported, others []string) {
	reported = []string{
		fmt.Sprintf("Kubernetes %s or newer, Linux %s or newer on %s", oldestKubelet, oldestKernel,
			strings.Join(architectures, " or ")),
		"container runtime containerd or CRI-O",
	}
	if w.PodCIDRs {
		reported = append(reported, "a podCIDR on each node (or config.kubernetes.addresses=pools)")
	}
	if w.Hugepages != "" {
		reported = append(reported, fmt.Sprintf("%s of hugepages of %s", w.Amount, w.Hugepages))
	}
	return reported, []string{
		"/dev/net/tun, and nf_tables with nft_masq, nft_nat, nft_ct and nft_fib_inet",
		"the image, in a registry or imported on each node",
	}
}

// Check returns the number of nodes that run Linux, and what they lack, one line each.
func Check(ctx context.Context, api *client.Client, w Wants) (count int, problems []string, err error) {
	nodes, err := api.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if n.Status.NodeInfo.OperatingSystem == "windows" {
			continue // the DaemonSets select linux
		}
		count++
		for _, problem := range w.lacks(&n) {
			problems = append(problems, fmt.Sprintf("node %s: %s", n.Name, problem))
		}
	}
	return count, problems, nil
}

// lacks returns what a node lacks.
func (w Wants) lacks(n *corev1.Node) (problems []string) {
	info := n.Status.NodeInfo
	if older(info.KubeletVersion, oldestKubelet) {
		problems = append(problems, fmt.Sprintf("kubelet %s is older than %s", info.KubeletVersion, oldestKubelet))
	}
	if older(info.KernelVersion, oldestKernel) {
		problems = append(problems, fmt.Sprintf("Linux %s is older than %s", info.KernelVersion, oldestKernel))
	}
	if info.Architecture != "" && !slices.Contains(architectures, info.Architecture) {
		problems = append(problems, fmt.Sprintf("architecture %s is not supported", info.Architecture))
	}
	if name, _, known := strings.Cut(info.ContainerRuntimeVersion, "://"); known && !slices.Contains(runtimes, name) {
		problems = append(problems,
			fmt.Sprintf("container runtime %s is neither containerd nor CRI-O", info.ContainerRuntimeVersion))
	}
	if w.PodCIDRs && n.Spec.PodCIDR == "" {
		problems = append(problems,
			"it has no podCIDR: set config.kubernetes.addresses=pools, or start kube-controller-manager with --allocate-node-cidrs")
	}
	if w.Hugepages != "" {
		has := n.Status.Allocatable[corev1.ResourceName(corev1.ResourceHugePagesPrefix+w.Hugepages)]
		if amount, err := resource.ParseQuantity(w.Amount); err == nil && has.Cmp(amount) < 0 {
			problems = append(problems,
				fmt.Sprintf("it has %s of hugepages of %s, less than %s", has.String(), w.Hugepages, w.Amount))
		}
	}
	return problems
}

// older reports whether a version is older than another. An unknown version is not.
func older(text string, than *version.Version) bool {
	v, err := version.ParseGeneric(strings.TrimPrefix(text, "v"))
	return err == nil && v.LessThan(than)
}
