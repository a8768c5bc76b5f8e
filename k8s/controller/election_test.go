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

// shelf stores one lease. Replicas that are cut off cannot reach it.
type shelf struct {
	mu      sync.Mutex
	version int
	lease   *coordinationv1.Lease
	cutOff  []string
}

// seat is the access of one replica to the shelf.
type seat struct {
	*shelf
	me string
}

func (s seat) reach() error {
	if slices.Contains(s.cutOff, s.me) {
		return errors.New("no route to host")
	}
	return nil
}

func (s seat) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
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

func (s seat) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(leaseKind, leaseName)
	}
	return s.keepLocked(l), s.reach()
}

func (s seat) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reach(); err != nil {
		return nil, err
	}
	if l.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(leaseKind, leaseName, errors.New("it is another version"))
	}
	return s.keepLocked(l), nil
}

func (s *shelf) keepLocked(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	return s.lease.DeepCopy()
}

func (s *shelf) cut(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutOff = names
}

// parliament is a set of replicas with their leaders.
type parliament struct {
	t      *testing.T
	shelf  *shelf
	mu     sync.Mutex
	lead   []string // now
	terms  []string // who began to lead, in order
	stops  map[string]context.CancelFunc
	ending sync.WaitGroup
}

func newParliament(t *testing.T, names ...string) *parliament {
	p := &parliament{t: t, shelf: &shelf{}, stops: map[string]context.CancelFunc{}}
	for _, name := range names {
		ctx, cancel := context.WithCancel(context.Background())
		p.stops[name] = cancel
		e := &election{
			leases: seat{p.shelf, name}, name: leaseName, me: name,
			log: slog.New(slog.DiscardHandler), beat: func() {},
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

func (p *parliament) leads(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		p.mu.Lock()
		p.lead, p.terms = append(p.lead, name), append(p.terms, name)
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

// after lets time pass and returns the leaders.
func (p *parliament) after(d time.Duration) string {
	<-time.After(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.lead)
}

func (p *parliament) end() {
	for _, stop := range p.stops {
		stop()
	}
	p.ending.Wait()
}

func TestOneReplicaLeadsAndAnotherFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParliament(t, "a", "b", "c")
		defer p.end()
		if got := p.after(time.Hour); got != "[a]" {
			t.Errorf("%s lead, want a alone", got)
		}
		p.stops["a"]() // it gives the lease back
		if got := p.after(2 * renewEvery); got != "[b]" && got != "[c]" {
			t.Errorf("%s lead after a has ended", got)
		}
		if changes := *p.shelf.lease.Spec.LeaseTransitions; changes != 2 {
			t.Errorf("the lease tells of %d changes, want 2", changes)
		}
	})
}

func TestALeaderWithoutAPIServerStopsBeforeAnotherOneBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParliament(t, "a", "b")
		defer p.end()
		p.after(time.Minute)
		p.shelf.cut("a")
		if got := p.after(renewWithin + renewEvery); got != "[]" {
			t.Errorf("%s lead, though a is cut off and its term is not over", got)
		}
		if got := p.after(term); got != "[b]" {
			t.Errorf("%s lead, want b", got)
		}
		p.shelf.cut()
		if got := p.after(time.Minute); got != "[b]" {
			t.Errorf("%s lead after a is back, want b still", got)
		}
		p.shelf.cut("a", "b")
		p.after(time.Minute)
		p.shelf.cut()
		if got := p.after(time.Minute); got != "[a]" && got != "[b]" {
			t.Errorf("%s lead after the API server is back", got)
		}
	})
}

func TestAReplicaWhoseWorkFailsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := &shelf{}
		e := &election{leases: seat{s, "a"}, name: leaseName, me: "a", log: slog.New(slog.DiscardHandler), beat: func() {}}
		if err := e.run(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("it ended with %v", err)
		}
		if ptr.Deref(s.lease.Spec.HolderIdentity, "") != "" {
			t.Error("the lease is still its own")
		}
	})
}
