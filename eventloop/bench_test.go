package eventloop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// BenchmarkEvent handles one event with twelve empty handlers.
func BenchmarkEvent(b *testing.B) {
	l := eventloop.New(eventloop.Config{Committer: &eventlooptest.Committer{}, Saver: &eventlooptest.Saver{}})
	for i := range 12 {
		eventloop.On(l, fmt.Sprint("handler ", i), func(context.Context, unknown, *eventloop.Txn) error { return nil })
	}
	eventlooptest.Ready(b, l)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Do(b.Context(), unknown{}); err != nil {
			b.Fatal(err)
		}
	}
}
