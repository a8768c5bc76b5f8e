package linux

import (
	"slices"
	"testing"

	"github.com/safchain/ethtool"

	"github.com/weftnet/weft/wire"
)

// A pod that may change its link can turn them on again. The dataplane then does what it can, until the audit repairs
// it.
func TestPodsEndLeavesNothingToTheDataplaneThatItCannotDo(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	l.mustCommit(l.namespace(), veth)
	l.quiet()
	link := veth.value.(wire.Veth).Name
	unwanted := []string{"tx-checksum-sctp", "tx-sctp-segmentation", "tx-udp-segmentation", "tx-udp_tnl-segmentation",
		"tx-udp_tnl-csum-segmentation", "tx-gre-segmentation", "tx-gre-csum-segmentation",
		"tx-ipxip4-segmentation", "tx-ipxip6-segmentation"}
	check := func(when string) {
		l.inside(func() {
			now := featuresOf(t, link)
			for _, name := range unwanted {
				if now[name] {
					t.Errorf("%s: %s is on", when, name)
				}
			}
			if !now["tx-tcp-segmentation"] || !now["tx-checksum-ip-generic"] {
				t.Errorf("%s: TCP has no offloads: %v", when, now)
			}
		})
	}
	check("created")
	l.inside(func() {
		must(t, withEthtool(func(tool *ethtool.Ethtool) error {
			return tool.Change(link, map[string]bool{"tx-udp_tnl-segmentation": true, "tx-checksum-sctp": true})
		}))
	})
	if !slices.Contains(l.different(), veth.key) {
		t.Error("the change is not found")
	}
	l.resync()
	check("repaired")
	l.quiet()
}

func featuresOf(t *testing.T, link string) (now map[string]bool) {
	t.Helper()
	must(t, withEthtool(func(tool *ethtool.Ethtool) (err error) {
		now, err = tool.Features(link)
		return err
	}))
	return now
}
