package e2e_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsReachTheAPIServerWithTheirServiceAccount(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	for _, hostNetwork := range []bool{false, true} {
		spec := podSpec("n1")
		spec.HostNetwork = hostNetwork
		spec.AutomountServiceAccountToken = nil
		spec.Containers[0].Args = []string{"pause"}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "asks-"}, Spec: spec}
		pod, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(), pod, metav1.CreateOptions{})
		s.must(err)
		if output := s.exec(s.ready(pod.Name), "api", "/version"); !strings.Contains(output, "gitVersion") {
			t.Errorf("with host network %t the response is %s", hostNetwork, output)
		}
	}
}

// Like the installer of the agents' DaemonSet.
func TestPrivilegedPodWritesOnItsNodeOnly(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const dir = "/opt/cni/bin"
	kind := corev1.HostPathDirectory
	spec := podSpec("n1")
	privileged := true
	both := corev1.MountPropagationBidirectional
	spec.HostNetwork = true
	spec.HostPID = true
	spec.Containers[0].Args = []string{"pause"}
	spec.Volumes = []corev1.Volume{
		{
			Name:         "plugins",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}},
		},
	}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "plugins", MountPath: "/plugins", MountPropagation: &both},
	}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	s.exec(s.ready("writer"), "write", "/plugins/some-plugin", "text")
	for node, want := range map[string]bool{"n1": true, "n2": false} {
		files, err := s.c.Node(node).Files(dir)
		s.must(err)
		if slices.Contains(files, dir+"/some-plugin") != want {
			t.Errorf("%s has %v", node, files)
		}
	}
	s.must(s.c.Node("n1").Do(func() error { return os.Remove(dir + "/some-plugin") }))
}

func TestManifestsAreAppliedByKubectl(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: some, namespace: " + s.name +
		"}\ndata: {key: value}\n"
	_, err := s.c.Kubectl(t.Context(), []byte(manifest), "apply", "-f", "-")
	s.must(err)
	got, err := s.c.Client.CoreV1().ConfigMaps(s.name).Get(t.Context(), "some", metav1.GetOptions{})
	s.must(err)
	if got.Data["key"] != "value" {
		t.Errorf("got %v", got.Data)
	}
}
