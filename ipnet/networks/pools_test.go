package networks

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

func TestADisabledPoolOfANamespaceIsNotChosen(t *testing.T) {
	set := &PoolSet{All: []netaddr.Pool{
		{Name: "disabled", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Disabled: true, Namespaces: []string{"shop"}},
		{Name: "all", Prefix: netip.MustParsePrefix("10.2.0.0/16")},
	}}
	names, err := set.ForPod(&pod.Request{ID: pod.ID{Namespace: "shop", Name: "a"}})
	if err != nil || !slices.Equal(names, []string{"all"}) {
		t.Errorf("pools %q, %v", names, err)
	}
}
