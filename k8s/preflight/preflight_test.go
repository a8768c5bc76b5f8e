package preflight_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/preflight"
)

func TestNodesThatLackARequirementAreNamed(t *testing.T) {
	tests := []struct {
		name   string
		wants  preflight.Wants
		change func(*corev1.Node)
		why    string // "": no problem
	}{
		{"a supported node", preflight.Wants{PodCIDRs: true}, func(*corev1.Node) {}, ""},
		{
			"an old kubelet", preflight.Wants{},
			func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.29.14+k3s1" },
			"kubelet v1.29.14+k3s1 is older than 1.30",
		},
		{
			"an old kernel", preflight.Wants{},
			func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "4.19.0-27-amd64" },
			"Linux 4.19.0-27-amd64 is older than 5.10",
		},
		{
			"the oldest kernel", preflight.Wants{},
			func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "5.10.0-8-amd64" }, "",
		},
		{
			"an unknown kernel", preflight.Wants{}, func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "custom" },
			"",
		},
		{
			"another architecture", preflight.Wants{},
			func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "s390x" }, "architecture s390x",
		},
		{
			"another runtime", preflight.Wants{},
			func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = "docker://27.0" }, "docker://27.0",
		},
		{
			"without a podCIDR", preflight.Wants{PodCIDRs: true}, func(n *corev1.Node) { n.Spec.PodCIDR = "" },
			"no podCIDR",
		},
		{"without a podCIDR, with pools", preflight.Wants{}, func(n *corev1.Node) { n.Spec.PodCIDR = "" }, ""},
		{
			"without hugepages", preflight.Wants{Hugepages: "2Mi", Amount: "256Mi"}, func(*corev1.Node) {},
			"0 of hugepages of 2Mi, less than 256Mi",
		},
		{"with hugepages", preflight.Wants{Hugepages: "2Mi", Amount: "256Mi"}, func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("1Gi")}
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := k8stest.New(t)
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Spec:       corev1.NodeSpec{PodCIDR: "10.1.0.0/24"},
				Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
					KubeletVersion:          "v1.36.3",
					KernelVersion:           "6.12.48",
					Architecture:            "amd64",
					OperatingSystem:         "linux",
					ContainerRuntimeVersion: "containerd://2.2.9",
				}},
			}
			tt.change(node)
			server.Put("nodes", node)
			server.Put("nodes", &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "w1"},
				Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows"}},
			})
			api, err := client.New(server.Connection())
			if err != nil {
				t.Fatal(err)
			}
			count, problems, err := preflight.Check(t.Context(), api, tt.wants)
			if err != nil || count != 1 {
				t.Fatalf("%d nodes (%v)", count, err)
			}
			named := slices.ContainsFunc(problems, func(p string) bool {
				return strings.HasPrefix(p, "node n1: ") && strings.Contains(p, tt.why)
			})
			if tt.why == "" && len(problems) > 0 || tt.why != "" && (!named || len(problems) > 1) {
				t.Errorf("problems %q", problems)
			}
		})
	}
}
