package vpp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// lab is a dataplane with a scheduler in front of it.
type lab struct {
	*testing.T
	socket string
	client *Client
	s      *kvscheduler.Scheduler
}

func newLab(t *testing.T) *lab {
	t.Helper()
	netnstest.Require(t)
	return newLabOn(t, newRuins(t).socket)
}

func newLabOn(t *testing.T, socket string) *lab {
	t.Helper()
	l := &lab{T: t, socket: socket}
	// With the race detector, an ACL of all rules takes seconds on a busy machine.
	l.client = connect(t, l.socket, Options{Limit: time.Minute})
	l.s = kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
	if err := Register(l.s, l.client); err != nil {
		t.Fatal(err)
	}
	// The namespaces are dataplane/linux's; here it is enough that they are desired.
	if err := kvscheduler.Register(l.s, kvscheduler.Descriptor[wire.Namespace, struct{}]{
		Name: wire.KindNamespace, Equal: func(want, have wire.Namespace) bool { return want == have },
	}); err != nil {
		t.Fatal(err)
	}
	background(t, l.s.Run)
	l.s.Ready("test")
	return l
}

func connect(t *testing.T, socket string, o Options) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.Logger = testLogger(t)
	c, err := connectWithin(ctx, socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connectWithin connects to the dataplane's socket and retries until ctx ends. It does not retry after
// *MissingMessages.
func connectWithin(ctx context.Context, socket string, o Options) (*Client, error) {
	c := New(socket, o)
	for {
		err := c.connect(ctx)
		if err == nil {
			return c, nil
		}
		if missing := new(MissingMessages); errors.As(err, &missing) {
			return nil, fmt.Errorf("dataplane at %s: %w", socket, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(c.options.Redial):
		}
	}
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// object is a key and its value.
type object struct {
	key   string
	value any
}

// commit commits an atomic transaction without pending objects.
func (l *lab) commit(objects ...object) error {
	l.Helper()
	t := kvscheduler.Txn{Source: "test", Mode: kvscheduler.Atomic, NoPending: true}
	for _, o := range objects {
		object, err := l.s.Object(o.key, o.value)
		if err != nil {
			l.Fatal(err)
		}
		t.Set = append(t.Set, object)
	}
	_, err := l.s.Commit(l.Context(), t)
	return err
}

func (l *lab) mustCommit(objects ...object) {
	l.Helper()
	if err := l.commit(objects...); err != nil {
		l.Fatal(err)
	}
}

// differences reads everything back.
func (l *lab) differences(refs ...kvscheduler.Ref) []kvscheduler.Difference {
	l.Helper()
	found, err := l.s.Verify(l.Context(), refs...)
	if err != nil {
		l.Fatal(err)
	}
	return found
}

// quiet fails the test if a resync would change anything.
func (l *lab) quiet() {
	l.Helper()
	for _, d := range l.differences() {
		l.Errorf("differs: %+v", d)
	}
	record, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{DryRun: true, Force: true})
	if err != nil {
		l.Fatal(err)
	}
	for _, op := range record.Ops {
		l.Errorf("a resync would %s %s because of %s: %+v -> %+v", op.Verb, op.Ref, op.Why, op.Old, op.New)
	}
}

// ours lists the refs of all our objects in the dataplane.
func (l *lab) ours() []string {
	l.Helper()
	var refs []string
	refs = append(refs, dumped(l, vrfDescriptor(l.client))...)
	refs = append(refs, dumped(l, memifSocketDescriptor(l.client))...)
	refs = append(refs, dumped(l, interfaceDescriptor(l.client))...)
	refs = append(refs, dumped(l, membershipDescriptor(l.client))...)
	refs = append(refs, dumped(l, addressDescriptor(l.client))...)
	refs = append(refs, dumped(l, unnumberedDescriptor(l.client))...)
	refs = append(refs, dumped(l, routeDescriptor(l.client))...)
	refs = append(refs, dumped(l, neighbourDescriptor(l.client))...)
	refs = append(refs, dumped(l, bridgeDescriptor(l.client))...)
	refs = append(refs, dumped(l, bridgeMemberDescriptor(l.client))...)
	refs = append(refs, dumped(l, l2FIBDescriptor(l.client))...)
	refs = append(refs, dumped(l, macipDescriptor(l.client))...)
	refs = append(refs, dumped(l, aclDescriptor(l.client))...)
	refs = append(refs, dumped(l, interfaceACLDescriptor(l.client))...)
	refs = append(refs, dumped(l, proxyARPDescriptor(l.client))...)
	refs = append(refs, dumped(l, puntRedirectDescriptor(l.client))...)
	slices.Sort(refs)
	return refs
}

func dumped[V, M any](l *lab, d kvscheduler.Descriptor[V, M]) []string {
	l.Helper()
	var refs []string
	for a, err := range d.Backend.Dump(l.Context(), l.s.View()) {
		if err != nil {
			l.Fatal(err)
		}
		refs = append(refs, d.Name+"/"+a.Name)
	}
	return refs
}

// behind calls a backend directly for an applied object, with the arguments of the scheduler.
type behind struct {
	create func(l *lab, name string) error
	delete func(l *lab, name string) error
}

// backendOf is behind for a kind.
func backendOf[V, M any](make func(*Client) kvscheduler.Descriptor[V, M]) behind {
	item := func(l *lab, name string) (kvscheduler.Descriptor[V, M], []kvscheduler.Item[V, M]) {
		d := make(l.client)
		v, meta, ok := l.s.View().Applied(ref(d.Name, name))
		if !ok {
			l.Fatalf("%s/%s is not applied", d.Name, name)
		}
		it := kvscheduler.Item[V, M]{Name: name, Want: v.(V), Have: v.(V), Meta: meta.(M), NewMeta: meta.(M)}
		if d.Deps != nil {
			for _, dep := range d.Deps(name, it.Want) {
				_, handle, _ := l.s.View().Applied(dep.On)
				it.Handles = append(it.Handles, handle)
			}
		}
		return d, []kvscheduler.Item[V, M]{it}
	}
	return behind{
		create: func(l *lab, name string) error {
			d, batch := item(l, name)
			d.Backend.Create(l.Context(), batch)
			return batch[0].Err
		},
		delete: func(l *lab, name string) error {
			d, batch := item(l, name)
			d.Backend.Delete(l.Context(), batch)
			return batch[0].Err
		},
	}
}
