package ctl_test

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/ctl"
)

// A node that lacks a requirement stops an installation, but not a dry run.
func TestInstallNamesNodesThatLackARequirement(t *testing.T) {
	k := newKubelets(t, "n1")
	k.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			KernelVersion:           "4.19.0",
			KubeletVersion:          "v1.36.3",
			Architecture:            "amd64",
			ContainerRuntimeVersion: "containerd://2.2.9",
		}},
	})
	for _, tt := range []struct {
		args []string
		code int
	}{{[]string{"--dry-run"}, 0}, {[]string{"--kubectl", "/bin/true"}, 1}, {
		[]string{"--kubectl", "/bin/true", "--ignore-problems"}, 0,
	}} {
		var out, err bytes.Buffer
		code := ctl.Main(t.Context(), ctl.Env{Out: &out, Err: &err},
			append([]string{"install", "--kubeconfig", k.kubeconfig}, tt.args...))
		if code != tt.code || !strings.Contains(err.String(), "PROBLEM  node old: Linux 4.19.0 is older than 5.10\n") {
			t.Errorf("%v: exit code %d, want %d: %s", tt.args, code, tt.code, err.String())
		}
		if printed := strings.Contains(out.String(), "\nkind: DaemonSet\n"); printed != (tt.args[0] == "--dry-run") {
			t.Errorf("%v: printed objects: %v", tt.args, printed)
		}
	}
}
