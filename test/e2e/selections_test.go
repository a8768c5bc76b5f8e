package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// Keys of pods' annotations.
const (
	networksKey = "k8s.v1.cni.cncf.io/networks"
	statusKey   = "k8s.v1.cni.cncf.io/network-status"
)

// definitions has the kind NetworkAttachmentDefinition, for a cluster without Multus, and one definition of Weft.
const (
	definitionKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition, shortNames: [net-attach-def]}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {config: {type: string}}}}
`
	definition = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: blue, namespace: %s}
spec: {config: '{"cniVersion": "1.0.0", "name": "blue", "type": "weft-cni", "mode": "delegate", "network": "e2e-blue"}'}
`
)

// statusEntry is an interface in the network-status annotation.
type statusEntry struct {
	Name, Interface string
	IPs             []string
	Default         bool
}

// status waits for a pod's network-status annotation.
func (s *space) status(name string) (list []statusEntry) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), name+" has its network-status annotation",
		func(ctx context.Context) error {
			pod, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Annotations[statusKey] == "" {
				return errors.New("annotation " + statusKey + " is missing")
			}
			return json.Unmarshal([]byte(pod.Annotations[statusKey]), &list)
		}))
	return list
}

// applyDefinitionKind makes the cluster know NetworkAttachmentDefinitions until the test ends.
func (s *space) applyDefinitionKind() {
	s.t.Helper()
	s.apply(definitionKind)
	// kubectl wait fails at once for a definition without conditions.
	s.must(cluster.Eventually(s.t.Context(), "the definition is established", func(ctx context.Context) error {
		_, err := s.c.Kubectl(ctx, nil, "wait", "--for=condition=Established",
			"crd/network-attachment-definitions.k8s.cni.cncf.io")
		return err
	}))
}

// Without Multus the agents connect a pod to the networks that it selects, and write the network-status annotation.
func TestPodGetsTheNetworksThatItSelects(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	s.applyDefinitionKind()
	s.apply(fmt.Sprintf(definition, s.name))
	var pods []*corev1.Pod
	for _, node := range []string{"n1", "n2"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "on-" + node, Annotations: map[string]string{networksKey: "blue@b0"}},
			Spec:       podSpec(node),
		}
		_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(), pod, metav1.CreateOptions{})
		s.must(err)
	}
	for _, node := range []string{"n1", "n2"} {
		pods = append(pods, s.ready("on-"+node))
	}
	for _, pod := range pods {
		list := s.status(pod.Name)
		if len(list) != 2 || !list[0].Default || list[0].Interface != "eth0" ||
			!slices.Contains(list[0].IPs, pod.Status.PodIP) {
			t.Fatalf("the annotation of %s is %+v, and its address is %s", pod.Name, list, pod.Status.PodIP)
		}
		var has []string
		for _, address := range s.on(pod, "b0") {
			has = append(has, address.String())
		}
		if list[1].Name != s.name+"/blue" || list[1].Interface != "b0" || !slices.Equal(list[1].IPs, has) {
			t.Errorf("the annotation of %s is %+v, and its b0 has %v", pod.Name, list[1], has)
		}
	}
	for _, address := range s.on(pods[1], "b0") {
		s.exec(pods[0], "ping", address.String())
	}
}

// An agent may write one annotation of pods of its own node.
func TestAgentAnnotatesPodsOfItsOwnNodeOnly(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	agent := s.agentOf("n1").Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(s.name)
	try := func(pod string, metadata map[string]any) error {
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		s.must(err)
		_, err = agent.Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll},
		})
		return err
	}
	status := map[string]any{"annotations": map[string]string{statusKey: "[]"}}
	s.create("mine", "n1")
	s.create("theirs", "n2")
	s.ready("mine")
	s.ready("theirs")
	s.checkVerdict("annotate a pod of its own node", try("mine", status), true)
	s.checkVerdict("annotate a pod of another node", try("theirs", status), false)
	for what, metadata := range map[string]map[string]any{
		"write another annotation": {"annotations": map[string]string{statusKey: "[]", networksKey: "blue"}},
		"write a label":            {"labels": map[string]string{"app": "other"}},
		"write a finalizer":        {"finalizers": []string{"contivpp.io/stay"}},
	} {
		s.checkVerdict(what, try("mine", metadata), false)
	}
	s.checkVerdict("delete a pod",
		agent.Delete(t.Context(), "mine", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), false)
}

// Policies decide by the annotation of other nodes' pods, so users who may write pods do not change it.
func TestUsersDoNotChangeTheNetworkStatusOfAPod(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	s.create("p", "n1")
	s.ready("p")
	s.status("p")
	owner := s.editor("tenant")
	forged := map[string]any{statusKey: `[{"name": "default", "interface": "net1", "ips": ["10.244.1.200"]}]`}
	for _, a := range []struct {
		what        string
		annotations map[string]any
		client      kubernetes.Interface
		sub         []string
		may         bool
	}{
		{"forge addresses", forged, owner, nil, false},
		{"forge addresses by the status", forged, owner, []string{"status"}, false}, // has no right to it
		{"remove the annotation", map[string]any{statusKey: nil}, owner, nil, true},
		{"write another annotation", map[string]any{"other": "text"}, owner, nil, true},
		{"write it as one who may write the status", forged, s.c.Client, nil, true},
		{"write it by the status", forged, s.c.Client, []string{"status"}, true},
	} {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": a.annotations}})
		s.must(err)
		_, err = a.client.CoreV1().Pods(s.name).Patch(t.Context(), "p", types.MergePatchType, patch,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, a.sub...)
		s.checkVerdict(a.what, err, a.may)
	}
}

// editor returns a client with the rights of a user who may edit the objects of the namespace.
func (s *space) editor(name string) kubernetes.Interface {
	s.t.Helper()
	_, err := s.c.Client.RbacV1().RoleBindings(s.name).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	s.must(err)
	access := rest.CopyConfig(s.c.Access)
	access.Impersonate.UserName = name
	access.Impersonate.Groups = []string{"system:authenticated"}
	client, err := kubernetes.NewForConfig(access)
	s.must(err)
	s.must(cluster.Eventually(s.t.Context(), "the rights of "+name, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		return err
	}))
	return client
}
