package blocks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// ask is a pod that waits for an address.
type ask struct {
	pools []string // keys
	done  chan<- error
}

// Run steps until ctx ends: at each poke, each interval, and after an error with growing pauses.
func (k *Keeper) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 30*time.Second
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var asked *ask
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-k.asks:
			asked = &a
		case <-k.poke:
		case <-timer.C:
		}
		next := k.config.Interval
		if err := k.look(ctx, asked); err != nil {
			k.config.Log.Warn("blocks of addresses not updated, retrying", "err", err)
			next = max(pause.NextBackOff(), 0)
		} else {
			pause.Reset()
		}
		timer.Reset(next)
	}
}

// look steps once, and answers a waiting pod.
func (k *Keeper) look(ctx context.Context, asked *ask) error {
	if asked == nil {
		return k.Step(ctx)
	}
	k.want(asked.pools, true)
	err := k.Step(ctx)
	k.want(asked.pools, false)
	asked.done <- err
	return err
}

func (k *Keeper) want(pools []string, wanted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range pools {
		if delete(k.wanted, key); wanted {
			k.wanted[key] = true
		}
	}
}

// Need claims a block of one of the pools for a pod without a free address, and returns when there is one. Only this call makes a pod wait for
// the API server.
func (k *Keeper) Need(ctx context.Context, pools ...Pool) error {
	done := make(chan error, 1)
	a := ask{done: done}
	for _, p := range pools {
		a.pools = append(a.pools, p.Key())
	}
	select {
	case k.asks <- a:
	case <-ctx.Done():
		return fmt.Errorf("wait for a block of addresses: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return k.answer(err, pools)
	case <-ctx.Done():
		return fmt.Errorf("wait for a block of addresses: %w", ctx.Err())
	}
}

// Exhausted reports whether a pool had no block left for this node when it last needed one, and this node has no free address.
func (k *Keeper) Exhausted(p Pool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, exhausted := k.exhausted[p.Key()]
	return exhausted && k.levelOf(p).free() == 0
}

// answer returns nil if one of the pools has a free address, whatever failed for other pools.
func (k *Keeper) answer(err error, pools []Pool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range pools {
		if k.levelOf(p).free() > 0 {
			return nil
		}
	}
	if err == nil {
		err = errors.New("no address is free, and the API server has not answered yet")
	}
	return err
}
