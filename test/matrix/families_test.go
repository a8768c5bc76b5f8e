package matrix_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// A namespace's annotation selects one family on a node that has both.
func TestPodOfOneFamilyIsConnectedOnADualStackNode(t *testing.T) {
	netnstest.RequireTap(t)
	dir := programs.Build(t)
	o := options("dual")
	o.Pools = []node.Pool{
		{Name: "pods4", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Namespaces: []string{"v4"}},
		{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:10:1::/64"), Namespaces: []string{"v6"}},
	}
	m := newMatrix(t, dir, o)
	defer m.end(t)
	m.start(t)
	for _, families := range []string{"v4", "v6"} {
		for _, kind := range dataplane.Kinds() {
			t.Run(fmt.Sprintf("%s-%s", families, kind), func(t *testing.T) {
				m.playAs(t, cell{kind, "default", families}, families)
			})
		}
	}
}
