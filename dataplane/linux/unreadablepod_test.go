package linux

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// addAlternativeNames fills the kernel's messages about a link until the library cannot read them.
func addAlternativeNames(t *testing.T, link netlink.Link) {
	t.Helper()
	for i := range 600 {
		if err := netlink.LinkAddAltName(link, fmt.Sprintf("%0127d", i)); err != nil {
			break
		}
	}
	if _, err := netlink.LinkByName(link.Attrs().Name); err == nil {
		t.Skip("this kernel's messages about a link with many names can be read")
	}
}

// What a pod does to its links concerns this pod alone: the drift of other pods is found, and the pod is named.
func TestUnreadablePodDoesNotKeepOtherPodsFromBeingChecked(t *testing.T) {
	for kind, veth := range map[string]bool{"tap": false, "veth": true} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t)
			other, others, _ := l.otherPod()
			objects, link := l.linkObjects(veth)
			l.mustCommit(append(objects, others...)...)
			l.quiet()
			l.inside(func() { addAlternativeNames(t, mustFind(t, link)) })
			netnstest.Do(t, other, func() {
				must(t, netlink.LinkSetHardwareAddr(mustFind(t, "eth0"), []byte{2, 9, 9, 9, 9, 9}))
			})
			want := []string{wire.TapPeerKey("tap-b")}
			if got := l.different(); !slices.Equal(got, want) {
				t.Errorf("objects %v differ, want %v", got, want)
			}
			rec, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{DryRun: true})
			must(t, err)
			if !slices.ContainsFunc(rec.Ops, func(op kvscheduler.OpRecord) bool { return op.Ref == want[0] }) {
				t.Errorf("a check of all kinds finds %v, without %s", rec.Ops, want[0])
			}
			inode, device, err := InspectNamespace(l.path)
			must(t, err)
			if l.full.Of(inode, device) == nil {
				t.Error("the pod is not recorded as one that cannot be read")
			}
		})
	}
}

// A pod's own filters and rules keep its announcements back, and fail nothing.
func TestAnnouncementThatThePodForbidsIsNoError(t *testing.T) {
	for name, forbid := range map[string]func(t *testing.T){
		"filter of the output": func(t *testing.T) {
			c, err := nftables.New()
			must(t, err)
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "pods"})
			drop := nftables.ChainPolicyDrop
			c.AddChain(&nftables.Chain{
				Name:     "output",
				Table:    table,
				Type:     nftables.ChainTypeFilter,
				Hooknum:  nftables.ChainHookOutput,
				Priority: nftables.ChainPriorityFilter, Policy: &drop,
			})
			must(t, c.Flush())
		},
		"rule before the local table": func(t *testing.T) {
			local := netlink.NewRule()
			prohibit := netlink.NewRule()
			local.Family = netlink.FAMILY_V6
			local.Table = unix.RT_TABLE_LOCAL
			local.Priority = 10
			prohibit.Family = netlink.FAMILY_V6
			prohibit.Type = unix.FR_ACT_PROHIBIT
			prohibit.Priority = 1
			must(t, netlink.RuleAdd(prohibit))
			must(t, netlink.RuleAdd(local))
			local.Priority = 0
			must(t, netlink.RuleDel(local))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			objects, member := l.announcedVeth()
			l.mustCommit(objects...)
			l.inside(func() { forbid(t) })
			l.unannounced.Store(0)
			moved := member.value.(wire.BridgeMember)
			moved.BridgeDomain = "weft:red"
			l.mustCommit(object{member.key, moved})
			if l.unannounced.Load() == 0 {
				t.Error("nothing says that the address is not announced")
			}
			l.quiet()
		})
	}
}
