package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// tunnelPortLook is the period between two looks at the node's VXLAN devices.
const tunnelPortLook = 15 * time.Second

// tunnelPort compares the VXLAN devices of the node's kernel with the tunnels, which have the same port. It belongs to
// one goroutine.
//
// A packet with a VNI of Weft goes to the dataplane, and all others stay with the kernel. Only VPP on a network card
// that it owns takes all.
type tunnelPort struct {
	port     uint16
	takesAll bool
	networks func() []pod.Network
	health   *health.Conditions
	log      *slog.Logger
	failed   string // why the last look failed, as logged
}

func (m *Member) tunnelPort() *tunnelPort {
	return &tunnelPort{
		port: m.Config.Kubernetes.TunnelPort(), takesAll: m.Uplink.owned && m.Config.Dataplane.Type == config.VPP,
		networks: func() []pod.Network { return m.View.View().Networks }, health: m.Health, log: m.Log,
	}
}

// follow sets the condition from time to time until ctx ends.
func (t *tunnelPort) follow(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { t.look() }, tunnelPortLook)
	return ctx.Err()
}

func (t *tunnelPort) look() {
	devices, err := linux.VXLANDevices(t.port)
	if err != nil {
		if t.failed != err.Error() {
			t.log.Warn("VXLAN devices of the node not read, retrying", "err", err)
		}
		t.failed = err.Error()
		return
	}
	t.failed = ""
	message, ok := t.conditionOf(devices)
	t.health.Set(health.TunnelPort, ok, message)
}

// conditionOf returns the message of the condition for the devices on the tunnels' port, and whether packets of both
// arrive.
func (t *tunnelPort) conditionOf(devices []linux.VXLANDevice) (message string, ok bool) {
	var beside, lost []string
	for _, d := range devices {
		network, shared := t.networkOf(d.VNI)
		switch {
		case t.takesAll:
			lost = append(lost,
				fmt.Sprintf(
					"VPP owns the network card, and drops all packets of the VXLAN device %s, which has UDP port %d too",
					d.Name, t.port))
		case shared && !d.AnyVNI:
			lost = append(lost,
				fmt.Sprintf(
					"the VXLAN device %s has VNI %d and UDP port %d, as network %s: packets of other nodes reach only one of them",
					d.Name, d.VNI, t.port, network))
		case d.AnyVNI:
			beside = append(beside, fmt.Sprintf("%s (with VNIs of its own choice, but not those of networks)", d.Name))
		default:
			beside = append(beside, fmt.Sprintf("%s (VNI %d)", d.Name, d.VNI))
		}
	}
	if len(lost) > 0 {
		return strings.Join(lost, "; ") + ". Set kubernetes.vxlanPort to another port on all nodes", false
	}
	if len(beside) > 0 {
		return fmt.Sprintf("UDP port %d is also that of %s", t.port, strings.Join(beside, ", ")), true
	}
	return "", true
}

// networkOf returns the network that has a VNI for itself or for one of its VLANs.
func (t *tunnelPort) networkOf(vni uint32) (name string, found bool) {
	if vni == networks.DefaultVNI {
		return pod.DefaultNetwork, true
	}
	for _, n := range t.networks() {
		if n.VNI != 0 && n.HasVNI(n.VNI, vni) {
			return n.Name, true
		}
	}
	return "", false
}
