package connectivity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/internal/probe"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/exec"
	"github.com/weftnet/weft/k8s/fleet"
)

// Names in the pods.
const (
	memifResource = "contivpp.io/memif"
	container     = "probe"
	clientPod     = "client" // sends the probes
	nearPod       = "near"   // answers on the client's node
	farPod        = "far"    // answers on the other node
	service       = "server"
)

// probePod is a pod of the test.
type probePod struct {
	name, node string
	interfaces []probe.Interface
}

// createPods creates the client and a server on its node, and a server on the other node. It also creates a Service for
// the servers.
func (t *test) createPods(ctx context.Context) error {
	t.pods = []*probePod{{name: clientPod, node: t.nodes[0].Name}, {name: nearPod, node: t.nodes[0].Name}}
	if len(t.nodes) > 1 {
		t.pods = append(t.pods, &probePod{name: farPod, node: t.nodes[1].Name})
	}
	for _, p := range t.pods {
		if _, err := t.Client.Pods(t.name).Create(ctx, t.manifest(p), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s/%s: %w", t.name, p.name, client.OneLine(err))
		}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"role": "server"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		Ports: []corev1.ServicePort{{Name: "tcp", Port: probe.Port, TargetPort: intstr.FromInt32(probe.Port)}},
	}}
	if _, err := t.Client.Services(t.name).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service %s/%s: %w", t.name, service, client.OneLine(err))
	}
	return nil
}

// manifest returns a pod with an interface of each type. Its program needs no capability.
func (t *test) manifest(p *probePod) *corev1.Pod {
	var interfaces []string
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	for _, network := range t.nets {
		kind := network[strings.LastIndexByte(network, '-')+1:]
		interfaces = append(interfaces, kind+"0/"+kind+"/"+network)
		if kind == "tap" && t.memif {
			interfaces = append(interfaces, "memif0/memif/"+network)
			limits[memifResource] = resource.MustParse("1")
		}
	}
	role := map[string]string{"role": "server", label: t.name}
	if p.name == clientPod {
		role["role"] = clientPod
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: role}, Spec: corev1.PodSpec{
		NodeName:                      p.node, // kubelet admits the pod; taints do not matter
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		EnableServiceLinks:            ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65534)), RunAsGroup: ptr.To(int64(65534)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ping_group_range", Value: "0 2147483647"}},
		},
		Containers: []corev1.Container{{
			Name:            container,
			Image:           t.image,
			ImagePullPolicy: t.policy,
			Command:         []string{fleet.WeftctlPath, "probe", "serve"},
			Resources:       corev1.ResourceRequirements{Limits: limits},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}}
	if len(interfaces) > 0 {
		pod.Annotations = map[string]string{"contivpp.io/custom-if": strings.Join(interfaces, ", ")}
		if t.memif {
			pod.Annotations["contivpp.io/custom-if-options"] = `{"memif0": {"uid": 65534, "gid": 65534}}`
		}
	}
	return pod
}

// awaitPods waits until all pods run, and reads their interfaces. A pod that does not start is a failed test.
func (t *test) awaitPods(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, t.PodReady)
	defer cancel()
	var running []*probePod
	for _, p := range t.pods {
		t.Progress(fmt.Sprintf("waiting for pod %s on node %s", p.name, p.node))
		reason := t.awaitPod(waiting, p)
		if reason == "" {
			if err := t.readInterfaces(ctx, p); err != nil {
				reason = err.Error()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result := Result{Test: "start a pod", Path: "node " + p.node, To: p.name, State: Passed}
		if reason != "" {
			result.State = Failed
			result.Reason = reason
			result.Hint = fmt.Sprintf("kubectl weft events --node %s", p.node)
		} else {
			running = append(running, p)
		}
		t.Report(result)
	}
	t.pods = running
	return nil
}

// awaitPod waits until a pod runs, and returns why it does not.
func (t *test) awaitPod(ctx context.Context, p *probePod) (reason string) {
	for {
		o, err := t.Client.Pods(t.name).Get(ctx, p.name, metav1.GetOptions{})
		switch {
		case err == nil && isRunning(o):
			return ""
		case err == nil && o.Status.Phase == corev1.PodFailed:
			return strings.TrimSpace(o.Status.Reason + " " + o.Status.Message)
		}
		if retry.Pause(ctx, poll) != nil {
			return "it does not run: " + t.obstacle(context.WithoutCancel(ctx), p, o)
		}
	}
}

func isRunning(p *corev1.Pod) bool {
	s := p.Status.ContainerStatuses
	return p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 && len(s) > 0 && s[0].State.Running != nil
}

// obstacle returns the last warning about a pod, else its state.
func (t *test) obstacle(ctx context.Context, p *probePod, o *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	list, err := t.Client.Events(t.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.name})
	if err == nil {
		warnings := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
			return e.Type != corev1.EventTypeWarning || e.InvolvedObject.Name != p.name
		})
		slices.SortFunc(warnings, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
		if len(warnings) > 0 {
			last := warnings[len(warnings)-1]
			return last.Reason + ": " + last.Message
		}
	}
	if o == nil || len(o.Status.ContainerStatuses) == 0 {
		return "kubelet of node " + p.node + " has not started it"
	}
	if w := o.Status.ContainerStatuses[0].State.Waiting; w != nil {
		return strings.TrimSpace(w.Reason + " " + w.Message)
	}
	return "phase " + string(o.Status.Phase)
}

// run runs weftctl probe in a pod.
func (t *test) run(ctx context.Context, pod string, arguments []string, out io.Writer) error {
	var failures bytes.Buffer
	in := exec.Container{Namespace: t.name, Pod: pod, Name: container}
	program := exec.Program{Container: in, Command: append([]string{fleet.WeftctlPath, "probe"}, arguments...)}
	err := exec.Run(ctx, t.Client, program, exec.Streams{Out: out, Err: bounded(&failures, maxFailure)})
	if errors.As(err, new(exec.ExitError)) {
		return fmt.Errorf("weftctl probe in pod %s: %w: %s", pod, err, strings.TrimSpace(failures.String()))
	}
	return err
}

func (t *test) readInterfaces(ctx context.Context, p *probePod) error {
	var text bytes.Buffer
	out := bounded(&text, maxInterfaces)
	if err := t.run(ctx, p.name, []string{"interfaces"}, out); err != nil {
		return err
	}
	if out.Cut {
		return fmt.Errorf("interfaces of pod %s: more than %d KiB", p.name, maxInterfaces>>10)
	}
	interfaces, err := parseInterfaces(text.Bytes())
	if err != nil {
		return fmt.Errorf("interfaces of pod %s: %w", p.name, err)
	}
	p.interfaces = interfaces
	return nil
}

func isIPv6(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Is6()
}

func names(nodes []fleet.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return strings.Join(all, " and ")
}
