package main

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
	"github.com/weftnet/weft/vswitch/forward"
)

func TestMain(m *testing.M) {
	if isAttacker() {
		beAttacker()
		return
	}
	netnstest.Main(m)
}

// The short form: each attack lasts one second, and the verdict does not depend on the machine's speed.
func TestAttacksFail(t *testing.T) {
	netnstest.RequireTap(t)
	s := settings{
		programs: programs.Build(t),
		quiet:    200 * time.Millisecond,
		attack:   time.Second,
		deadline: time.Minute,
	}
	if err := run(t.Context(), os.Stdout, s); err != nil {
		t.Error(err)
	}
}

// make attack SIEGE=20000 makes more calls. The log has the seed.
func TestSiegeOf200CallsFindsNoViolation(t *testing.T) {
	netnstest.RequireTap(t)
	s := settings{programs: programs.Build(t), calls: 200, seed: rand.Uint64(), verbose: true}
	if err := runSiege(t.Context(), os.Stdout, s); err != nil {
		t.Error(err)
	}
}

func TestEachAttackHasAMethod(t *testing.T) {
	known := map[string]bool{}
	for _, a := range attacks() {
		known[a.name] = true
		if methods[a.name] == nil {
			t.Errorf("attack %s has no method", a.name)
		}
	}
	for name := range methods {
		if !known[name] {
			t.Errorf("method %s has no attack", name)
		}
	}
}

func TestPrefixOfForwardingThreadsMatchesTheDataplane(t *testing.T) {
	if workerThreads != forward.WorkerThreads {
		t.Errorf("the prefix of forwarding threads is %q, weft-vswitch uses %q", workerThreads, forward.WorkerThreads)
	}
}
