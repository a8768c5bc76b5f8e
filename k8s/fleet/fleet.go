// Package fleet finds the agents of a cluster's nodes, and runs programs in their containers.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/exec"
)

// Names in the manifests.
const (
	Namespace      = "weft-system" // default namespace of the agents
	agentSelector  = "app.kubernetes.io/name=weft,app.kubernetes.io/component=agent"
	agentContainer = "agent"
	WeftctlPath    = "/usr/local/bin/weftctl" // in the image
)

// Fleet is access to the agents of a cluster.
type Fleet struct {
	client    *client.Client
	namespace string
}

// New returns access to the agents in a namespace. It sends nothing.
func New(c *client.Client, namespace string) *Fleet {
	return &Fleet{client: c, namespace: cmp.Or(namespace, Namespace)}
}

// Node is a node of the cluster.
type Node struct {
	Name   string
	Ready  bool   // Kubernetes reports it as ready
	Agent  string // the pod of its agent; "": none runs
	Absent string // why no agent runs
}

// Nodes lists the nodes of the cluster by name, each with its agent. Nodes of other operating systems than Linux are
// skipped.
func (f *Fleet) Nodes(ctx context.Context) ([]Node, error) {
	list, err := f.client.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, f.client.ListError(ctx, "nodes", err)
	}
	agents, err := f.agents(ctx)
	if err != nil {
		return nil, err
	}
	nodes := []Node{}
	for i := range list.Items {
		n := &list.Items[i]
		if system := n.Labels[corev1.LabelOSStable]; system != "" && system != "linux" {
			continue
		}
		node := Node{Name: n.Name, Ready: client.IsReady(n)}
		node.Agent, node.Absent = f.agentOf(agents[n.Name])
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// agents returns the agents' pods, by node.
func (f *Fleet) agents(ctx context.Context) (map[string][]*corev1.Pod, error) {
	list, err := f.client.Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
	if err != nil {
		return nil, f.client.ListError(ctx, "pods in namespace "+f.namespace, err)
	}
	agents := make(map[string][]*corev1.Pod)
	for i := range list.Items {
		p := &list.Items[i]
		agents[p.Spec.NodeName] = append(agents[p.Spec.NodeName], p)
	}
	return agents, nil
}

// agentOf returns the newest pod with a running agent, or why none runs.
func (f *Fleet) agentOf(pods []*corev1.Pod) (name, absent string) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	absent = fmt.Sprintf("no agent: namespace %s has no pod with the labels %s on this node", f.namespace,
		agentSelector)
	for i, p := range pods {
		reason := agentState(p)
		if reason == "" {
			return p.Name, ""
		}
		if i == 0 {
			absent = fmt.Sprintf("its agent %s does not run: %s", p.Name, reason)
		}
	}
	return "", absent
}

// agentState returns why a pod's agent does not run; "": it runs.
func agentState(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.Name != agentContainer || c.State.Running != nil:
		case c.State.Waiting != nil:
			return cmp.Or(c.State.Waiting.Reason, "waiting")
		case c.State.Terminated != nil:
			return cmp.Or(c.State.Terminated.Reason, "terminated")
		}
	}
	if p.Status.Phase != corev1.PodRunning {
		return cmp.Or(string(p.Status.Phase), "unknown phase")
	}
	return ""
}

// Choose returns the nodes with the names, in the order of nodes. An unknown name is an error.
func Choose(nodes []Node, names []string) ([]Node, error) {
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
			return nil, fmt.Errorf("the cluster has no node %q; it has %s", name, some(nodes))
		}
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !slices.Contains(names, n.Name) }), nil
}

// some lists the names of the first nodes.
func some(nodes []Node) string {
	const most = 5
	var names []string
	for _, n := range nodes[:min(len(nodes), most)] {
		names = append(names, n.Name)
	}
	if len(nodes) > most {
		names = append(names, fmt.Sprintf("%d more", len(nodes)-most))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// NodeOf returns the node of a pod.
func (f *Fleet) NodeOf(ctx context.Context, namespace, name string) (string, error) {
	p, err := f.client.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no pod %s/%s; set --node for a pod that was deleted", namespace, name)
	case err != nil:
		return "", f.client.ListError(ctx, "pod "+namespace+"/"+name, err)
	case p.Spec.NodeName == "":
		return "", fmt.Errorf("pod %s/%s has no node: it is not scheduled yet", namespace, name)
	}
	return p.Spec.NodeName, nil
}

// PodNames lists pods as NAMESPACE/NAME, by name, in one namespace, or in all for "". A cluster may have very many: a
// part is enough for a completion.
func (f *Fleet) PodNames(ctx context.Context, namespace string) ([]string, error) {
	const most = 1000
	list, err := f.client.Pods(namespace).List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil, f.client.ListError(ctx, "pods", err)
	}
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// Weftctl runs weftctl with the arguments beside the agent of a node.
func (f *Fleet) Weftctl(ctx context.Context, node Node, arguments []string, s exec.Streams) error {
	if node.Agent == "" {
		return AbsentError{node.Absent}
	}
	in := exec.Container{Namespace: f.namespace, Pod: node.Agent, Name: agentContainer}
	return exec.Run(ctx, f.client, exec.Program{Container: in, Command: append([]string{WeftctlPath}, arguments...)}, s)
}

// AbsentError says why a node has no running agent.
type AbsentError struct{ Reason string }

// Error returns the reason.
func (e AbsentError) Error() string { return e.Reason }

// Image returns the image of a node's agent, and when kubelet pulls it.
func (f *Fleet) Image(ctx context.Context, node Node) (string, corev1.PullPolicy, error) {
	if node.Agent == "" {
		return "", "", AbsentError{node.Absent}
	}
	p, err := f.client.Pods(f.namespace).Get(ctx, node.Agent, metav1.GetOptions{})
	if err != nil {
		return "", "", f.client.ListError(ctx, "pod "+f.namespace+"/"+node.Agent, err)
	}
	for _, c := range p.Spec.Containers {
		if c.Name == agentContainer && c.Image != "" {
			return c.Image, c.ImagePullPolicy, nil
		}
	}
	return "", "", fmt.Errorf("pod %s/%s has no container %s with an image", f.namespace, node.Agent, agentContainer)
}
