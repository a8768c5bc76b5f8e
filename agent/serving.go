package agent

import (
	"context"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/proto/serving"
)

// servedEvery is the time between marks that pods are served; weft-cni takes one for good some times as long.
const servedEvery = 10 * time.Second

// started reports whether the first resync has ended.
func (a *Agent) started() bool { return a.health.Holds(health.Started) }

// markServed marks that pods are served, for weft-cni while a next agent starts.
func (a *Agent) markServed() {
	if err := serving.Mark(a.config.Socket); err != nil {
		a.log.Warn("weft-cni will not know that this agent served", "err", err)
	}
}

// goOnMarking keeps the mark of an agent that is ready from growing old.
func (a *Agent) goOnMarking(ctx context.Context) error {
	tick := time.NewTicker(servedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if a.health.Missing() == nil {
			a.markServed()
		}
	}
}
