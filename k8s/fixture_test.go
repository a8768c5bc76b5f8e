package k8s_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
)

const (
	networks = "customnetworks.contivpp.io"
	pools    = "ippools.contivpp.io"
	ipblocks = "ipblocks.contivpp.io"
	configs  = "weftconfigs.contivpp.io"
	external = "externalinterfaces.contivpp.io"
	nodeNets = "nodenetworks.contivpp.io"
	nads     = "network-attachment-definitions.k8s.cni.cncf.io"
)

// lab is an API server with a node n1.
type lab struct {
	*k8stest.Server
	t *testing.T
}

func newLab(t *testing.T) *lab {
	l := &lab{k8stest.New(t), t}
	l.node("n1", nil)
	return l
}

func (l *lab) node(name string, set func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Labels: map[string]string{"zone": "a"}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.200.0.11"}, {Type: corev1.NodeHostName, Address: name}}
	if set != nil {
		set(n)
	}
	l.Put("nodes", n)
}

func (l *lab) namespace(name string, labels, annotations map[string]string) {
	l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}})
}

func (l *lab) pod(name, uid, node string, set func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(uid), Annotations: map[string]string{"contivpp.io/custom-if": name + "/tap"},
	}}
	p.Spec.NodeName = node
	if set != nil {
		set(p)
	}
	l.Put("pods", p)
}

func (l *lab) network(name string, spec v1.CustomNetworkSpec) {
	l.Put(networks, &v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Spec: spec})
}

func (l *lab) pool(name, cidr string, age time.Duration, set func(*v1.IPPoolSpec)) {
	p := &v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age).Truncate(time.Second))}}
	p.Spec.CIDR = v1.CIDR(cidr)
	if set != nil {
		set(&p.Spec)
	}
	l.Put(pools, p)
}

func (l *lab) client() *k8s.Client {
	l.t.Helper()
	c, err := k8s.NewClient(l.Connection())
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// cluster runs a view of the cluster until the test ends.
func (l *lab) cluster(set func(*k8s.Config)) *k8s.Cluster {
	l.t.Helper()
	config := k8s.Config{Node: "n1", Client: l.client(), Log: slog.New(slog.NewTextHandler(l.t.Output(), nil))}
	if set != nil {
		set(&config)
	}
	c, err := k8s.New(config)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				l.t.Errorf("the cluster ended with %v", err)
			}
		case <-time.After(time.Minute):
			l.t.Error("the cluster does not end")
		}
	})
	return c
}

// known is a view that is complete.
func (l *lab) known(set func(*k8s.Config)) *k8s.Cluster {
	l.t.Helper()
	c := l.cluster(set)
	l.eventually("the view is complete", func() bool { return c.View().Complete })
	return c
}

func (l *lab) eventually(what string, is func() bool) {
	l.t.Helper()
	k8stest.Eventually(l.t, what, is)
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
