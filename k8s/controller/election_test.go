package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

var leaseKind = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leaseStore stores one lease. Disconnected replicas cannot reach it.
type leaseStore struct {
	mu       sync.Mutex
	version  int
	lease    *coordinationv1.Lease
	cutOff   []string
	requests int
}

// leaseClient is the connection of one replica to the store.
type leaseClient struct {
	*leaseStore
	me string
}

func (s leaseClient) reach() error {
	s.requests++
	if slices.Contains(s.cutOff, s.me) {
		return errors.New("no route to host")
	}
	return nil
}

func (s leaseClient) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reach(); err != nil {
		return nil, err
	}
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leaseKind, leaseName)
	}
	return s.lease.DeepCopy(), nil
}

func (s leaseClient) Create(
	_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(leaseKind, leaseName)
	}
	return s.keepLocked(l), s.reach()
}

func (s leaseClient) Update(
	_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reach(); err != nil {
		return nil, err
	}
	if l.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(leaseKind, leaseName, errors.New("version mismatch"))
	}
	return s.keepLocked(l), nil
}

func (s *leaseStore) keepLocked(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	return s.lease.DeepCopy()
}

func (s *leaseStore) cut(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutOff = names
}

// replicas are running replicas and their leaders.
type replicas struct {
	t          *testing.T
	leaseStore *leaseStore
	mu         sync.Mutex
	lead       []string // current leaders
	terms      []string // names of leaders in order
	stops      map[string]context.CancelFunc
	ending     sync.WaitGroup
}

func newReplicas(t *testing.T, names ...string) *replicas {
	p := &replicas{t: t, leaseStore: &leaseStore{}, stops: map[string]context.CancelFunc{}}
	for _, name := range names {
		ctx, cancel := context.WithCancel(context.Background())
		p.stops[name] = cancel
		e := &election{
			leases: leaseClient{p.leaseStore, name}, name: leaseName, me: name,
			log: slog.New(slog.DiscardHandler), checked: func() {},
		}
		p.ending.Go(func() {
			if err := e.run(ctx, p.leads(name)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v", name, err)
			}
		})
		synctest.Wait()
	}
	return p
}

func (p *replicas) leads(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		p.mu.Lock()
		p.lead = append(p.lead, name)
		p.terms = append(p.terms, name)
		if len(p.lead) > 1 {
			p.t.Errorf("%v lead at the same time", p.lead)
		}
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lead = slices.DeleteFunc(p.lead, func(n string) bool { return n == name })
		return ctx.Err()
	}
}

// after waits and returns the leaders.
func (p *replicas) after(d time.Duration) string {
	<-time.After(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.lead)
}

func (p *replicas) end() {
	for _, stop := range p.stops {
		stop()
	}
	p.ending.Wait()
}

func TestOneReplicaLeadsAndAnotherFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, "a", "b", "c")
		defer p.end()
		if got := p.after(time.Hour); got != "[a]" {
			t.Errorf("%s lead, want a alone", got)
		}
		p.stops["a"]() // releases the lease
		if got := p.after(2 * renewEvery); got != "[b]" && got != "[c]" {
			t.Errorf("%s lead after a has ended", got)
		}
		if changes := *p.leaseStore.lease.Spec.LeaseTransitions; changes != 2 {
			t.Errorf("the lease tells of %d changes, want 2", changes)
		}
	})
}

// Others may annotate the lease.
func TestALeaderRenewsByOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, "a")
		defer p.end()
		p.after(time.Minute)
		count := func() (n int) {
			p.leaseStore.mu.Lock()
			defer p.leaseStore.mu.Unlock()
			n = p.leaseStore.requests
			p.leaseStore.requests = 0
			return n
		}
		count()
		p.after(time.Minute)
		if n := count(); n != 30 { // one in 2 seconds, as client-go's default
			t.Errorf("%d requests in a minute, want 30", n)
		}
		p.leaseStore.mu.Lock()
		p.leaseStore.lease.Annotations = map[string]string{"note": "kept"}
		p.leaseStore.keepLocked(p.leaseStore.lease)
		p.leaseStore.mu.Unlock()
		if got := p.after(time.Minute); got != "[a]" || p.leaseStore.lease.Annotations["note"] != "kept" {
			t.Errorf("%s lead, annotations %v", got, p.leaseStore.lease.Annotations)
		}
		if n := count(); n != 32 {
			t.Errorf("%d requests in a minute with a change by another writer", n)
		}
	})
}

func TestALeaderWithoutAPIServerStopsBeforeAnotherOneStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, "a", "b")
		defer p.end()
		p.after(time.Minute)
		p.leaseStore.cut("a")
		if got := p.after(renewWithin + renewEvery); got != "[]" {
			t.Errorf("%s lead, though a is cut off and its leaseDuration is not over", got)
		}
		if got := p.after(leaseDuration); got != "[b]" {
			t.Errorf("%s lead, want b", got)
		}
		p.leaseStore.cut()
		if got := p.after(time.Minute); got != "[b]" {
			t.Errorf("%s lead after a is back, want b still", got)
		}
		p.leaseStore.cut("a", "b")
		p.after(time.Minute)
		p.leaseStore.cut()
		if got := p.after(time.Minute); got != "[a]" && got != "[b]" {
			t.Errorf("%s lead after the API server is back", got)
		}
	})
}

func TestAReplicaEndsAfterAnErrorOfItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := &leaseStore{}
		e := &election{
			leases:  leaseClient{s, "a"},
			name:    leaseName,
			me:      "a",
			log:     slog.New(slog.DiscardHandler),
			checked: func() {},
		}
		if err := e.run(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("it ended with %v", err)
		}
		if ptr.Deref(s.lease.Spec.HolderIdentity, "") != "" {
			t.Error("the lease is still its own")
		}
	})
}
