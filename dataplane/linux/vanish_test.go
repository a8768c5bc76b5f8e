package linux

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// addPairs makes veths of ours, both ends of each in this namespace, and items for their deletion.
func addPairs(t *testing.T, count int) []vethItem {
	t.Helper()
	var batch []vethItem
	for i := range count {
		v := wire.Veth{Name: fmt.Sprintf("in-pod%d", i), HostName: fmt.Sprintf("on-node%d", i), Alias: alias}
		pair := netlink.NewVeth(netlink.NewLinkAttrs())
		pair.Name, pair.PeerName, pair.Alias = v.HostName, v.Name, v.Alias
		must(t, netlink.LinkAdd(pair))
		must(t, netlink.LinkSetAlias(pair, alias))
		batch = append(batch, kvscheduler.Item[wire.Veth, netnsID]{Name: v.HostName, Have: v})
	}
	return batch
}

// TestNamesOfDeletedVethsAreFreeAtOnce has no pause between deletion and creation: the kernel is not done with the old ones then.
func TestNamesOfDeletedVethsAreFreeAtOnce(t *testing.T) {
	newLab(t)
	for range 3 {
		batch := addPairs(t, 2*maxDeletions+1)
		must(t, netlink.LinkDel(mustFind(t, batch[3].Have.HostName))) // gone already
		veths{}.Delete(t.Context(), batch)
		for _, it := range batch {
			if it.Err != nil {
				t.Errorf("delete %s: %v", it.Name, it.Err)
			}
			if isThere(it.Have.HostName) || isThere(it.Have.Name) {
				t.Errorf("%s or its peer is still there", it.Name)
			}
		}
	}
}
