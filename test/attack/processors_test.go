package main

import (
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
)

func TestForwardingThreadsAreKnownByTheirNames(t *testing.T) {
	if workerThreads != forward.WorkerThreads {
		t.Errorf("threads with names of %q are looked for, but weft-vswitch names them %q", workerThreads, forward.WorkerThreads)
	}
}
