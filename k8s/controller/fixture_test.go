package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
)

const (
	networks  = "customnetworks.contivpp.io"
	pools     = "ippools.contivpp.io"
	ipblocks  = "ipblocks.contivpp.io"
	externals = "externalinterfaces.contivpp.io"
	nodeNets  = "nodenetworks.contivpp.io"
	leasesOf  = "leases.coordination.k8s.io"
	namespace = "weft-system"
)

type lab struct {
	*k8stest.Server
	t *testing.T
}

func newLab(t *testing.T) *lab { return &lab{k8stest.New(t), t} }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Generation: 1} }

func (l *lab) network(name string, set func(*v1.CustomNetworkSpec)) {
	n := &v1.CustomNetwork{ObjectMeta: named(name), Spec: v1.CustomNetworkSpec{Type: v1.L2}}
	if set != nil {
		set(&n.Spec)
	}
	l.Put(networks, n)
}

func (l *lab) client() *client.Client {
	l.t.Helper()
	c, err := client.New(l.Connection())
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// replica returns a replica that does not run.
func (l *lab) replica(name string, set func(*Config)) *Controller {
	l.t.Helper()
	config := Config{
		Client:    l.client(),
		Namespace: namespace,
		Identity:  name,
		Log:       slog.New(slog.NewTextHandler(l.t.Output(), nil)).With("replica", name),
	}
	if set != nil {
		set(&config)
	}
	c, err := New(config)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// leadership is an observer of a replica that knows whether the replica leads.
type leadership struct {
	unobserved
	atomic.Bool
}

// Leads records that the replica begins or ends to lead.
func (l *leadership) Leads(leads bool) { l.Store(leads) }

// start runs a function until the returned function is called, or the test ends.
func (l *lab) start(what string, run func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				l.t.Errorf("%s failed: %v", what, err)
			}
		case <-time.After(k8stest.Patience):
			l.t.Errorf("%s does not end", what)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// watching returns a replica that watches and does not lead.
func (l *lab) watching(name string) (c *Controller, stop func()) {
	l.t.Helper()
	c = l.replica(name, nil)
	stop = l.start(name, c.overview.Run)
	l.eventually(name+" has synced", func() bool { return c.Ready() == nil })
	return c, stop
}

func (l *lab) eventually(what string, is func() bool) {
	l.t.Helper()
	k8stest.Eventually(l.t, what, is)
}

// get reads a network from the API server.
func (l *lab) get(name string) v1.CustomNetwork {
	var n v1.CustomNetwork
	l.Object(networks, "", name, &n)
	return n
}

func reason(conditions v1.Conditions) string {
	if c := meta.FindStatusCondition(conditions, v1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
