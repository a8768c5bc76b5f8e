package vpp

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	"github.com/weftnet/weft/wire"
)

// Fields that the dataplane does not report decide about dependencies. If such a field changes, the dependencies must
// follow, although no operation is needed: otherwise a pod is disconnected when its last policy ends, or a replay
// connects it without its ACL.
func TestDependenciesFollowFieldsThatTheDataplaneDoesNotReport(t *testing.T) {
	member := wire.InterfaceVRF{Interface: "pod", VRF: "pods/ip4", Family: netaddr.IP4}
	port := wire.BridgeMember{Interface: "pod", BridgeDomain: "blue", LinuxEnd: wire.VethKey("pod")}
	name := wire.InterfaceVRFName("pod", netaddr.IP4)
	got := kvschedulertest.FollowsUnread(t, membershipDescriptor(nil), name, member)
	if want := []string{"AntiSpoofed", "Filtered"}; !slices.Equal(got, want) {
		t.Errorf("members of VRFs: the fields are %q, want %q", got, want)
	}
	got = kvschedulertest.FollowsUnread(t, bridgeMemberDescriptor(nil), "pod", port)
	if want := []string{"AntiSpoofed", "Filtered", "LinuxEnd"}; !slices.Equal(got, want) {
		t.Errorf("members of bridge domains: the fields are %q, want %q", got, want)
	}
}

// The other kinds have no such field. A new one belongs to the test above.
func TestOtherKindsReportWhatTheirDependenciesAreOf(t *testing.T) {
	for kind, got := range map[string][]string{
		wire.KindVRF: kvschedulertest.FollowsUnread(t, vrfDescriptor(nil), "a/ip4", wire.VRF{
			ID:     1,
			Family: netaddr.IP4,
			Label:  "a",
		}),
		wire.KindInterface: kvschedulertest.FollowsUnread(t, interfaceDescriptor(nil), "a", wire.Interface{
			Type: wire.TypeTap,
			Tap:  wire.Tap{Name: "eth0"},
		}),
		wire.KindAddress: kvschedulertest.FollowsUnread(t, addressDescriptor(nil), "a", wire.Address{
			Interface: "a",
		}),
		wire.KindUnnumbered: kvschedulertest.FollowsUnread(t, unnumberedDescriptor(nil), "a", wire.Unnumbered{
			Interface: "a",
			Donor:     "b",
		}),
		wire.KindRoute: kvschedulertest.FollowsUnread(t, routeDescriptor(nil), "a", wire.Route{
			VRF:   "v",
			Paths: []wire.Path{{Interface: "a"}},
		}),
		wire.KindNeighbour: kvschedulertest.FollowsUnread(t, neighbourDescriptor(nil), "a", wire.Neighbour{
			Interface: "a",
		}),
		wire.KindBridgeDomain: kvschedulertest.FollowsUnread(t, bridgeDescriptor(nil), "a", wire.BridgeDomain{}),
		wire.KindL2FIB:        kvschedulertest.FollowsUnread(t, l2FIBDescriptor(nil), "a", wire.L2FIB{}),
		wire.KindMACIP:        kvschedulertest.FollowsUnread(t, macipDescriptor(nil), "a", wire.MACIP{Interface: "a"}),
		wire.KindInterfaceACL: kvschedulertest.FollowsUnread(t, interfaceACLDescriptor(nil), "a", wire.InterfaceACL{
			Interface: "a",
		}),
		wire.KindProxyARP: kvschedulertest.FollowsUnread(t, proxyARPDescriptor(nil), "a", wire.ProxyARP{}),
	} {
		if len(got) > 0 {
			t.Errorf("%s: the fields %q decide about dependencies, and Equal ignores them", kind, got)
		}
	}
}
