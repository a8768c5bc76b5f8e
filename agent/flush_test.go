package agent

import (
	"errors"
	"os"
	"testing"

	"github.com/google/nftables"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// Other programs of the node flush the rules of all, or turn forwarding off. The period of the audit is a day, so only
// a notification can cause the repair.
func TestFlushesByOtherProgramsAreRepaired(t *testing.T) {
	for name, tt := range map[string]struct {
		flush func() error
		words string // of the event
	}{
		"nft flush ruleset": {func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.FlushRuleset()
			return c.Flush()
		}, "drift repaired: linux.masquerade/"},
		"rules of Weft's table deleted": {func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.FlushTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "weft"})
			return c.Flush()
		}, "drift repaired: linux.masquerade/"},
		"forwarding of IPv4 off": {off("net/ipv4/ip_forward"), "drift repaired: linux.sysctl/"},
		"forwarding of IPv6 off": {off("net/ipv6/conf/all/forwarding"), "drift repaired: linux.sysctl/"},
		"forwarding of IPv4 off for the host's link": {
			off("net/ipv4/conf/weft0/forwarding"), "drift repaired: linux.sysctl/linux.tap-peer/weft-host/net/ipv4/conf/",
		},
		"forwarding of IPv6 off for the host's link": {
			off("net/ipv6/conf/weft0/forwarding"), "drift repaired: linux.sysctl/linux.tap-peer/weft-host/net/ipv6/conf/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &driftLab{lab: newLab(t, programs.Build(t))}
			must.Succeed(t, errors.Join(d.StopAgent(), d.StartAgent(t.Context(), "--audit=24h")))
			must.Succeed(t, tt.flush())
			d.awaitDriftEvent(tt.words)
			d.audited()
		})
	}
}

// The table and the link of the tunnels are repaired as soon: without them pods have no traffic to other nodes.
func TestFlushesByOtherProgramsOfTheTunnelsTableAreRepaired(t *testing.T) {
	server := k8stest.New(t)
	d := &driftLab{lab: clusterLabWith(t, server, node.Options{})}
	var own v1.NodeNetwork
	d.eventually("the node announces itself", func() bool {
		return server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && own.Spec.NodeIDConfirmed
	})
	must.Succeed(t, errors.Join(d.StopAgent(), d.StartAgent(t.Context(), "--audit=24h")))
	c, err := nftables.New()
	must.Succeed(t, err)
	c.FlushTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "weft-tunnels"})
	must.Succeed(t, c.Flush())
	d.awaitDriftEvent("drift repaired: linux.tunnel-nat/")
	must.Succeed(t, off("net/ipv4/conf/weft-vtep0/forwarding")())
	d.awaitDriftEvent("drift repaired: linux.sysctl/linux.tap-peer/weft-vtep/")
}

// off returns a function that sets a setting of the node to 0.
func off(name string) func() error {
	return func() error { return os.WriteFile("/proc/sys/"+name, []byte("0"), 0) }
}
