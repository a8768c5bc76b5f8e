// Package memif_test connects pods with memifs, with the real programs and with programs of pods.
package memif_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) {
	netnstest.Enter()
	goleak.VerifyTestMain(m, programs.Keep())
}

// memifs is the number of memifs of a node.
const memifs = 8

// lab is a node with memifs.
type lab struct {
	*testing.T
	*node.Node
	runtime *node.Runtime
}

func newLab(t *testing.T, o node.Options) *lab {
	t.Helper()
	netnstest.Require(t)
	netnstest.RequireTap(t)
	o.Verify = true
	o.CoolDown = 50 * time.Millisecond
	if o.Memifs == 0 {
		o.Memifs = memifs
	}
	n, err := node.New(programs.Build(t, "github.com/weftnet/weft/memif/examples/..."), o)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, Node: n}
	t.Cleanup(func() { l.close() })
	l.try(n.StartAgent(t.Context()))
	l.runtime, err = n.Runtime(t.Output())
	l.try(err)
	return l
}

func (l *lab) try(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}
