package main

import (
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
)

func TestPrefixOfForwardingThreadsMatchesTheDataplane(t *testing.T) {
	if workerThreads != forward.WorkerThreads {
		t.Errorf("the prefix of forwarding threads is %q, weft-vswitch uses %q", workerThreads, forward.WorkerThreads)
	}
}
