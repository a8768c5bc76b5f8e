package packets

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
)

// churned is the number of interfaces that are made and deleted.
const churned = 1000

// pauses summarises the pauses of a polling thread.
type pauses struct {
	watched, paused, longest time.Duration
}

func (p *pauses) add(d time.Duration) {
	if p.longest = max(p.longest, d); d >= longPause {
		p.paused += d
	}
}

func (p pauses) share() float64 { return 100 * float64(p.paused) / float64(max(p.watched, 1)) }

// gaps watches the worker while interfaces are made and deleted. Then it repeats that with threads that only read the
// clock: on the worker's processor, and on the watcher's, because other work has to run somewhere.
func (r *run) gaps(ctx context.Context) error {
	// No garbage collection of this process during the measurement.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var worker, spinner pauses
	err := r.onWire(ctx, "L2", false, func(l *link) error {
		return r.whileChurning(ctx, func(churning *atomic.Bool) (err error) {
			worker, err = l.watch(churning)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("poll gaps: %w", err)
	}
	err = r.whileChurning(ctx, func(churning *atomic.Bool) (err error) {
		spinner, err = spinBoth(churning)
		return err
	})
	if err != nil {
		return fmt.Errorf("gaps of a spinning thread: %w", err)
	}
	fmt.Fprintf(r.Out,
		"pauses above %s while %d memifs are made, bridged and deleted by the API (%.1f s): the worker, seen by single packets "+
			"through it, %.2f %% of the time, longest %.2f ms;\n  a thread of this process that only looks at the clock, its collector off, on the same "+
			"processor meanwhile (%.1f s): %.2f %%, longest %.2f ms\n", longPause, churned, worker.watched.Seconds(),
		worker.share(), milli(worker.longest),
		spinner.watched.Seconds(), spinner.share(), milli(spinner.longest))
	r.verdicts.add("share of time in pauses, beside a spinning thread's, %", beside(spinner.share()), worker.share(),
		"%.2f")
	return nil
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// whileChurning watches while interfaces are made and deleted.
func (r *run) whileChurning(ctx context.Context, watch func(*atomic.Bool) error) error {
	var churning atomic.Bool
	churning.Store(true)
	done := make(chan error, 1)
	go func() {
		defer churning.Store(false)
		done <- r.dataplane.churn(ctx)
	}()
	err := watch(&churning)
	return errors.Join(err, <-done)
}

// watch sends single packets through the worker. Pauses of this thread itself do not count.
func (l *link) watch(churning *atomic.Bool) (p pauses, err error) {
	for churning.Load() {
		took, away, err := l.cross()
		if err != nil {
			return p, err
		}
		p.watched += took
		p.add(max(took-away, 0))
	}
	return p, nil
}

// spinBoth keeps both processors busy, and returns the pauses on the worker's.
func spinBoth(churning *atomic.Bool) (p pauses, err error) {
	other := make(chan error, 1)
	go func() {
		other <- pinned(testerProcessor, func() error {
			spin(churning)
			return nil
		})
	}()
	err = pinned(workerProcessor, func() error {
		p = spin(churning)
		return nil
	})
	return p, errors.Join(err, <-other)
}

// spin reads the clock.
func spin(churning *atomic.Bool) (p pauses) {
	began := time.Now()
	for last := began; churning.Load(); {
		now := time.Now()
		p.add(now.Sub(last))
		last = now
	}
	p.watched = time.Since(began)
	return p
}

// churn makes interfaces, adds them to the bridge domain and deletes them.
func (d *dataplane) churn(ctx context.Context) error {
	var made []interface_types.InterfaceIndex
	var errs []error
	for i := range churned {
		index, err := d.addMemif(ctx, uint32(1000+i))
		if err != nil {
			errs = append(errs, err)
			break
		}
		made = append(made, index)
		if _, err := l2.NewServiceClient(d.conn).SwInterfaceSetL2Bridge(ctx,
			&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index, BdID: bridgeID, Enable: true}); err != nil {
			errs = append(errs, fmt.Errorf("bridge a memif: %w", err))
		}
	}
	for _, index := range made {
		errs = append(errs, d.deleteMemif(ctx, index))
	}
	return errors.Join(errs...)
}
