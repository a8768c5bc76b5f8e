// Package nodeviewtest runs a node's view of an API server with objects of a test.
package nodeviewtest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/nodeview"
)

// Lab is an API server with a node n1.
type Lab struct {
	*k8stest.Server
	T *testing.T
}

// New makes a Lab.
func New(t *testing.T) *Lab {
	l := &Lab{k8stest.New(t), t}
	l.Node("n1", nil)
	return l
}

// Node puts a Node.
func (l *Lab) Node(name string, set func(*corev1.Node)) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			UID:    types.UID("uid of " + name),
			Labels: map[string]string{"zone": "a"},
		},
	}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.200.0.11"}, {Type: corev1.NodeHostName, Address: name},
	}
	if set != nil {
		set(n)
	}
	l.Put("nodes", n)
}

// Namespace puts a Namespace.
func (l *Lab) Namespace(name string, labels, annotations map[string]string) {
	l.Put("namespaces", &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
	})
}

// Pod puts a pod of the namespace default.
func (l *Lab) Pod(name, uid, node string, set func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "default",
		Name:        name,
		UID:         types.UID(uid),
		Annotations: map[string]string{"contivpp.io/custom-if": name + "/tap"},
	}}
	p.Spec.NodeName = node
	if set != nil {
		set(p)
	}
	l.Put("pods", p)
}

// Network puts a CustomNetwork.
func (l *Lab) Network(name string, spec v1.CustomNetworkSpec) {
	l.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3},
		Spec:       spec,
	})
}

// Pool puts an IPPool.
func (l *Lab) Pool(name, cidr string, age time.Duration, set func(*v1.IPPoolSpec)) {
	p := &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			CreationTimestamp: metav1.NewTime(time.Now().Add(-age).Truncate(time.Second)),
		},
	}
	p.Spec.CIDR = v1.CIDR(cidr)
	if set != nil {
		set(&p.Spec)
	}
	l.Put("ippools.contivpp.io", p)
}

// Client returns a client of the API server.
func (l *Lab) Client() *client.Client {
	l.T.Helper()
	c, err := client.New(l.Connection())
	if err != nil {
		l.T.Fatal(err)
	}
	return c
}

// Cluster runs a view of the cluster until the test ends.
func (l *Lab) Cluster(set func(*nodeview.Config)) *nodeview.Cluster {
	l.T.Helper()
	config := nodeview.Config{Node: "n1", Client: l.Client(), Log: slog.New(slog.NewTextHandler(l.T.Output(), nil))}
	if set != nil {
		set(&config)
	}
	c, err := nodeview.New(config)
	if err != nil {
		l.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	l.T.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				l.T.Errorf("the cluster ended with %v", err)
			}
		case <-time.After(time.Minute):
			l.T.Error("the cluster does not end")
		}
	})
	return c
}

// Known runs a view until it is complete.
func (l *Lab) Known(set func(*nodeview.Config)) *nodeview.Cluster {
	l.T.Helper()
	c := l.Cluster(set)
	l.Eventually("the view is complete", func() bool { return c.View().Complete })
	return c
}

// Eventually waits until something is so.
func (l *Lab) Eventually(what string, is func() bool) {
	l.T.Helper()
	k8stest.Eventually(l.T, what, is)
}
