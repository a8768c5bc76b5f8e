package e2e_test

import (
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// agentOf returns a client with the rights of a node's agent: with a token bound to its pod, as kubelet requests it.
func (s *space) agentOf(node string) dynamic.Interface {
	s.t.Helper()
	agent := s.agentPod(s.t.Context(), node)
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: agent.Name, UID: agent.UID},
	}}
	return s.clientOf("weft-agent", request)
}

// clientOf returns a client with the rights of one of Weft's service accounts.
func (s *space) clientOf(account string, request *authv1.TokenRequest) dynamic.Interface {
	s.t.Helper()
	token, err := s.c.Client.CoreV1().ServiceAccounts("weft-system").CreateToken(s.t.Context(), account, request,
		metav1.CreateOptions{})
	s.must(err)
	access := rest.AnonymousClientConfig(s.c.Access)
	access.BearerToken = token.Status.Token
	client, err := dynamic.NewForConfig(access)
	s.must(err)
	return client
}

// The API server allows an agent to write objects of its own node only.
func TestAgentWritesNoObjectOfAnotherNode(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	agent := s.agentOf("n1")
	ours := schema.GroupVersion{Group: "contivpp.io", Version: "v1"}
	nodes := agent.Resource(ours.WithResource("nodenetworks"))
	blocks := agent.Resource(ours.WithResource("ipblocks"))
	for node, allowed := range map[string]bool{"n1": true, "n2": false} {
		s.checkVerdict("update the NodeNetwork of "+node, s.updateDry(nodes, node), allowed)
		s.checkVerdict("update its status", s.updateDry(nodes, node, "status"), allowed)
		s.checkVerdict("delete it",
			nodes.Delete(t.Context(), node, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), allowed)

		block := &unstructured.Unstructured{
			Object: map[string]any{"spec": map[string]any{"cidr": "10.99.0.0/26", "network": "e2e", "node": node}},
		}
		block.SetGroupVersionKind(ours.WithKind("IPBlock"))
		block.SetName("e2e.10.99.0.0-26")
		owner, err := s.c.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		s.must(err)
		block.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID}})
		_, err = blocks.Create(t.Context(), block, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		s.checkVerdict("claim a block for "+node, err, allowed)
	}
	for _, kind := range []string{"customnetworks", "ippools", "weftconfigs"} {
		err := agent.Resource(ours.WithResource(kind)).DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{})
		s.checkVerdict("delete all "+kind, err, false)
	}
	_, err := agent.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).List(t.Context(), metav1.ListOptions{})
	s.checkVerdict("read secrets", err, false)
}

// manyTries end after half a minute: agents write their objects often while other tests' pods are added and deleted.
var manyTries = wait.Backoff{Steps: 300, Duration: 50 * time.Millisecond, Factor: 1, Jitter: 1}

// updateDry tries to write an object, or a subresource, unchanged. It retries after conflicts with the object's node.
func (s *space) updateDry(objects dynamic.ResourceInterface, name string, part ...string) error {
	s.t.Helper()
	return retry.RetryOnConflict(manyTries, func() error {
		there, err := objects.Get(s.t.Context(), name, metav1.GetOptions{})
		s.must(err)
		_, err = objects.Update(s.t.Context(), there, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, part...)
		return err
	})
}

// checkVerdict fails the test unless an attempt was allowed or denied as expected.
func (s *space) checkVerdict(attempt string, err error, allowed bool) {
	s.t.Helper()
	if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		s.t.Errorf("%s (allowed: %t): %v", attempt, allowed, err)
	}
}
