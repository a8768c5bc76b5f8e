package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Durations of an election, as in Kubernetes' own controllers.
const (
	leaseDuration = 15 * time.Second // followers wait for a renewal by the leader
	renewEvery    = 2 * time.Second
	renewWithin   = 10 * time.Second // a leader without a renewal stops before another one can begin
	releaseLimit  = 3 * time.Second
)

// leases are the leases of a namespace.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// election elects a leader of several replicas, with the protocol of client-go's leaderelection. That package does not
// wait for the end of the leader's work: it releases the lease, so that two replicas work at once, and returns.
//
//	follower --no leader, or no renewal for leaseDuration--> leader --no renewal possible, or ended--> follower
//
// It never compares clocks of different machines: a replica measures for how long it has seen the lease unchanged.
type election struct {
	leases  leases
	name    string // of the lease
	me      string
	log     *slog.Logger
	checked func() // called before each check of the lease

	seen   string // last version of the lease
	seenAt time.Time
	held   *coordinationv1.Lease // as this replica wrote it last; nil: it does not lead, or the last write failed
}

// run calls lead whenever this replica leads, with a context that ends with its leadership, until ctx ends.
func (e *election) run(ctx context.Context, lead func(ctx context.Context) error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		won, err := e.try(ctx)
		if err != nil {
			e.log.Warn("lease not checked, retrying", "lease", e.name, "err", err)
		}
		if won {
			e.log.Info("this replica leads", "lease", e.name, "replica", e.me)
			if err := e.hold(ctx, tick, lead); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// hold leads and renews the lease, until either ends.
func (e *election) hold(ctx context.Context, tick *time.Ticker, lead func(ctx context.Context) error) error {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- lead(leading)
	}()
	e.renew(leading, tick)
	stop()
	err := <-ended
	e.release(context.WithoutCancel(ctx))
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		e.log.Warn("this replica no longer leads", "lease", e.name, "replica", e.me)
		return nil
	}
	return err
}

// renew renews the lease until that fails for too long, another replica leads, or ctx ends.
func (e *election) renew(ctx context.Context, tick *time.Ticker) {
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		attempt, cancel := context.WithDeadline(ctx, last.Add(renewWithin))
		held, err := e.try(attempt)
		cancel()
		switch {
		case held:
			last = began
		case err == nil, time.Since(last) >= renewWithin:
			return
		}
	}
}

// try acquires or renews the lease. It returns false if another replica has it. A renewal is one request, unless
// another writer changed the lease.
func (e *election) try(ctx context.Context) (bool, error) {
	e.checked()
	if e.held != nil {
		won, err := e.write(ctx, e.held)
		if won || err != nil {
			return won, err
		}
	}
	l, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l, err = e.leases.Create(ctx, e.mine(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.name}}),
			metav1.CreateOptions{})
		return e.result("create", l, err)
	}
	if err != nil {
		return false, fmt.Errorf("read lease %s: %w", e.name, err)
	}
	if l.ResourceVersion != e.seen {
		e.seen = l.ResourceVersion
		e.seenAt = time.Now()
	}
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	if holder != "" && holder != e.me && time.Since(e.seenAt) < leaseDuration {
		return false, nil
	}
	return e.write(ctx, l)
}

// write makes this replica the holder of a lease, unless it was written since it was read.
func (e *election) write(ctx context.Context, l *coordinationv1.Lease) (bool, error) {
	l, err := e.leases.Update(ctx, e.mine(l.DeepCopy()), metav1.UpdateOptions{})
	return e.result("write", l, err)
}

// result reports whether a write got the lease; another replica may have been faster.
func (e *election) result(verb string, written *coordinationv1.Lease, err error) (bool, error) {
	e.held = nil
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s lease %s: %w", verb, e.name, err)
	}
	e.held = written
	return true, nil
}

// mine makes this replica the holder of the lease from now on.
func (e *election) mine(l *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NowMicro()
	seconds := int32(leaseDuration / time.Second)
	changes := ptr.Deref(l.Spec.LeaseTransitions, 0)
	if ptr.Deref(l.Spec.HolderIdentity, "") != e.me {
		l.Spec.AcquireTime = &now
		changes++
	}
	l.Spec.HolderIdentity = &e.me
	l.Spec.RenewTime = &now
	l.Spec.LeaseDurationSeconds = &seconds
	l.Spec.LeaseTransitions = &changes
	return l
}

// release lets another replica lead at once.
func (e *election) release(ctx context.Context) {
	e.held = nil
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	l, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	if err != nil || ptr.Deref(l.Spec.HolderIdentity, "") != e.me {
		return // it expires, or another replica has it
	}
	l.Spec.HolderIdentity = new("")
	if _, err := e.leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
		e.log.Debug("lease not released, it expires", "lease", e.name, "err", err)
	}
}
