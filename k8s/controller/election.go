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
)

// Terms of an election, as other controllers of Kubernetes have them.
const (
	term         = 15 * time.Second // how long others wait for a sign of life of the leader
	renewEvery   = 2 * time.Second
	renewWithin  = 10 * time.Second // a leader that gave no sign for so long stops: before others may begin
	releaseLimit = 3 * time.Second
)

// leases are the leases of a namespace.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// election lets one of several replicas lead at a time. The protocol is that of client-go's leaderelection, so that its
// lease reads as others' do; that package itself would bring the clients of all kinds of Kubernetes into the program.
//
//	follows --nobody leads, or no sign of the leader for a term--> leads --no sign could be given, or ended--> follows
//
// Clocks of different machines are never compared: what counts is for how long this replica has seen the lease unchanged.
type election struct {
	leases leases
	name   string // of the lease
	me     string
	log    *slog.Logger
	beat   func() // told of each attempt

	seen   string // the version of the lease that was seen last
	seenAt time.Time
}

// run calls lead whenever this replica leads, with a context that ends when it does not any more, until ctx ends.
func (e *election) run(ctx context.Context, lead func(ctx context.Context) error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		won, err := e.try(ctx)
		if err != nil {
			e.log.Warn("lease not looked at, trying again", "lease", e.name, "err", err)
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

// hold leads and gives signs of life, until either ends.
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
		e.log.Warn("this replica leads no more", "lease", e.name, "replica", e.me)
		return nil
	}
	return err
}

// renew gives signs of life and returns when it could give none for too long, another replica leads, or ctx has ended.
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

// try takes the lease, or says again that it is this replica's; false: it is another's.
func (e *election) try(ctx context.Context) (bool, error) {
	e.beat()
	l, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = e.leases.Create(ctx, e.mine(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.name}}), metav1.CreateOptions{})
		return e.verdict("make", err)
	}
	if err != nil {
		return false, fmt.Errorf("read lease %s: %w", e.name, err)
	}
	if l.ResourceVersion != e.seen {
		e.seen, e.seenAt = l.ResourceVersion, time.Now()
	}
	holder := holderOf(l)
	if holder != "" && holder != e.me && time.Since(e.seenAt) < term {
		return false, nil
	}
	_, err = e.leases.Update(ctx, e.mine(l), metav1.UpdateOptions{})
	return e.verdict("write", err)
}

// verdict is whether a write made the lease this replica's; another replica may have been faster.
func (e *election) verdict(verb string, err error) (bool, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s lease %s: %w", verb, e.name, err)
	}
	return true, nil
}

// mine is the lease as this replica's, from now on.
func (e *election) mine(l *coordinationv1.Lease) *coordinationv1.Lease {
	now, seconds, changes := metav1.NowMicro(), int32(term/time.Second), int32(0)
	if before := l.Spec.LeaseTransitions; before != nil {
		changes = *before
	}
	if holderOf(l) != e.me {
		l.Spec.AcquireTime = &now
		changes++
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = &e.me, &now, &seconds, &changes
	return l
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// release lets another replica lead at once.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	l, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	if err != nil || holderOf(l) != e.me {
		return // it ends by itself, or is another's already
	}
	nobody := ""
	l.Spec.HolderIdentity = &nobody
	if _, err := e.leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
		e.log.Debug("lease not given back: it ends by itself", "lease", e.name, "err", err)
	}
}
