package kvscheduler_test

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/weftnet/weft/kvscheduler"
)

// downBackend keeps nothing, and can lose its peer.
type downBackend struct{ down *atomic.Bool }

type intItem = kvscheduler.Item[int, int]

func (b downBackend) do(batch []intItem) {
	for i := range batch {
		if b.down.Load() {
			batch[i].Err = kvscheduler.Refused(kvscheduler.ErrDown)
		}
	}
}

func (b downBackend) Create(_ context.Context, batch []intItem) { b.do(batch) }
func (b downBackend) Update(_ context.Context, batch []intItem) { b.do(batch) }
func (b downBackend) Delete(_ context.Context, batch []intItem) { b.do(batch) }

func (b downBackend) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, int], error] {
	return func(func(kvscheduler.Actual[int, int], error) bool) {}
}
