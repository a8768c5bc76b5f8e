package matrix_test

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/programs"
)

// Pods of an L2 network talk to its gateway; the gateway's neighbour entries are deleted with the pods.
func TestGatewayForgetsDeletedPods(t *testing.T) {
	netnstest.RequireTap(t)
	dir := programs.Build(t)
	m := newMatrix(t, dir, options("dual"))
	defer m.end(t)
	m.start(t)
	for _, kind := range dataplane.Kinds() {
		t.Run(kind, func(t *testing.T) {
			c := cell{kind, "L2", "dual"}
			a := m.newPod(t, c)
			b := m.newPod(t, c)
			defer func() { must.Succeed(t, a.Remove()); must.Succeed(t, b.Remove()) }()
			before, err := leftovers.Steady(t.Context(), m.places(a, b), settling)
			must.Succeed(t, err)
			defer m.leave(t, before, a, b)
			for _, w := range []*attachedPod{a, b} {
				m.add(t, w)
				answers(t, w, "x0", gateways(w.last())...)
			}
		})
	}
}
