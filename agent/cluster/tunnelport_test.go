package cluster

import (
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func TestVXLANDevicesOnTheTunnelsPortAreJudged(t *testing.T) {
	vlans, err := netaddr.ParseVLANs([]string{"100-101"})
	if err != nil {
		t.Fatal(err)
	}
	vlanVNI, _ := pod.VNIOfVLAN(1, 101)
	calico := linux.VXLANDevice{Name: "vxlan.calico", VNI: 4096}
	same := linux.VXLANDevice{Name: "foreign0", VNI: 100}
	ovs := linux.VXLANDevice{Name: "vxlan_sys_4789", AnyVNI: true}
	for what, tt := range map[string]struct {
		takesAll bool
		devices  []linux.VXLANDevice
		ok       bool
		want     []string
	}{
		"no device":            {false, nil, true, nil},
		"no device beside VPP": {true, nil, true, nil},
		"another VNI": {
			false, []linux.VXLANDevice{calico}, true, []string{"UDP port 4789 is also that of vxlan.calico (VNI 4096)"},
		},
		"any VNI": {
			false, []linux.VXLANDevice{ovs}, true, []string{"vxlan_sys_4789 (with VNIs of its own choice, but not those of networks)"},
		},
		"the VNI of a network": {
			false, []linux.VXLANDevice{calico, same}, false,
			[]string{"foreign0 has VNI 100 and UDP port 4789, as network blue", "kubernetes.vxlanPort"},
		},
		"the VNI of a VLAN of a network": {
			false, []linux.VXLANDevice{{Name: "foreign0", VNI: vlanVNI}}, false,
			[]string{"foreign0 has VNI", "as network trunk"},
		},
		"the VNI of default": {
			false, []linux.VXLANDevice{{Name: "foreign0", VNI: 10}}, false, []string{"as network default"},
		},
		"VPP with the node's card": {
			true, []linux.VXLANDevice{calico}, false,
			[]string{"VPP owns the network card", "vxlan.calico", "kubernetes.vxlanPort"},
		},
		"a network without its VNI": {
			false, []linux.VXLANDevice{{Name: "foreign0"}}, true, []string{"foreign0 (VNI 0)"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			watched := &tunnelPort{port: wire.VXLANPort, takesAll: tt.takesAll, networks: func() []pod.Network {
				return []pod.Network{{Name: "blue", VNI: 100}, {Name: "local"}, {Name: "trunk", VNI: 1, VLANs: vlans}}
			}}
			message, ok := watched.conditionOf(tt.devices)
			if ok != tt.ok || (message == "") != (len(tt.want) == 0) {
				t.Errorf("%t, %q", ok, message)
			}
			for _, part := range tt.want {
				if !strings.Contains(message, part) {
					t.Errorf("message %q, want %q", message, part)
				}
			}
		})
	}
}

// VPP takes packets of other programs only from a network card that it owns.
func TestOnlyVPPOnItsOwnCardTakesAllVXLANPackets(t *testing.T) {
	for _, tt := range []struct {
		dataplane string
		owned     bool
		want      bool
	}{{config.VPP, true, true}, {config.VPP, false, false}, {config.Embedded, true, false}, {
		config.Embedded, false, false,
	}} {
		m := &Member{Uplink: Uplink{owned: tt.owned}}
		m.Config.Dataplane.Type = tt.dataplane
		if got := m.tunnelPort().takesAll; got != tt.want {
			t.Errorf("%s, owns the card %t: %t", tt.dataplane, tt.owned, got)
		}
	}
}
