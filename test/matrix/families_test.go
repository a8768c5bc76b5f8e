package matrix_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/test/node"
)

// TestAPodOfOneFamilyIsWiredOnANodeOfBoth gives pods of a namespace addresses of one family, on a node that has both.
func TestAPodOfOneFamilyIsWiredOnANodeOfBoth(t *testing.T) {
	requireTaps(t)
	programs, err := build(t)
	try(t, err)
	o := options("dual")
	o.Pools = []node.Pool{
		{Name: "pods4", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Namespaces: []string{"v4"}},
		{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:10:1::/64"), Namespaces: []string{"v6"}},
	}
	m := newMatrix(t, programs, o)
	defer m.end(t)
	m.start(t)
	for _, families := range []string{"v4", "v6"} {
		for _, kind := range []string{"tap", "veth"} {
			t.Run(fmt.Sprintf("%s-%s", families, kind), func(t *testing.T) { m.playAs(t, cell{kind, "default", families}, families) })
		}
	}
}
