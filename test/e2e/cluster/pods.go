package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// CreateNamespace makes a namespace and waits until pods can be created in it.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return c.awaitDefaults(ctx, name)
}

// awaitDefaults waits for the objects of a namespace that pods need and controllers create.
func (c *Cluster) awaitDefaults(ctx context.Context, namespace string) error {
	return Eventually(ctx, "pods can be created in "+namespace, func(ctx context.Context) error {
		if _, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// Exec runs e2e-pod with arguments in the first container of a pod and returns its stdout; the error includes its
// stderr.
func (c *Cluster) Exec(ctx context.Context, pod *corev1.Pod, arguments ...string) (string, error) {
	request := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(
		pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: pod.Spec.Containers[0].Name,
			Command:   append([]string{"/e2e-pod"}, arguments...),
			Stdout:    true,
			Stderr:    true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Access, "GET", request.URL().String())
	if err != nil {
		return "", fmt.Errorf("exec in %s: %w", pod.Name, err)
	}
	var out, complaints bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdout: &out,
		Stderr: &complaints,
	}); err != nil {
		return out.String(), fmt.Errorf("exec %v in %s: %w: %s", arguments, pod.Name, err, complaints.Bytes())
	}
	return out.String(), nil
}

// Kubectl runs kubectl as the administrator, with the manifest as stdin if there is one (-f -).
func (c *Cluster) Kubectl(ctx context.Context, manifest []byte, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.config.Programs.Path("kubectl"),
		append([]string{"--kubeconfig=" + c.Control.Kubeconfig()}, arguments...)...)
	var complaints bytes.Buffer
	cmd.Env = c.config.Programs.Env()
	cmd.Stdin = bytes.NewReader(manifest)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s", arguments[0], err, complaints.Bytes())
	}
	return out, nil
}
