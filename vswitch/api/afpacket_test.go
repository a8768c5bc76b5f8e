package api

import (
	"errors"
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/model/modeltest"
	"github.com/weftnet/weft/vswitch/port"
)

func (a *testClient) links() af_packet.RPCService { return af_packet.NewServiceClient(a.conn) }

func (a *testClient) attached(t testingT) []af_packet.AfPacketDetails {
	t.Helper()
	s, err := a.links().AfPacketDump(a.context, &af_packet.AfPacketDump{})
	var list []af_packet.AfPacketDetails
	for _, d := range collect[*af_packet.AfPacketDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

func TestAFPacketCreateAndDelete(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	mac := ethernet_types.MacAddress{2, 1, 2, 3, 4, 5}
	one, err := invoke(t, a, a.links().AfPacketCreateV3, &af_packet.AfPacketCreateV3{
		Mode:       af_packet.AF_PACKET_API_MODE_ETHERNET,
		HostIfName: "weft0",
		HwAddr:     mac,
		Flags:      af_packet.AF_PACKET_API_FLAG_CKSUM_GSO | af_packet.AF_PACKET_API_FLAG_VERSION_2,
	})
	if err != nil {
		t.Fatal(err)
	}
	two, err := invoke(t, a, a.links().AfPacketCreateV3, &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		HostIfName:      "weft1",
		UseRandomHwAddr: true,
		HwAddr:          mac,
		Flags:           af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS,
		NumRxQueues:     1,
		NumTxQueues:     16,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []af_packet.AfPacketDetails{
		{SwIfIndex: one.SwIfIndex, HostIfName: "weft0"}, {SwIfIndex: two.SwIfIndex, HostIfName: "weft1"},
	}
	if got := a.attached(t); !slices.Equal(got, want) {
		t.Errorf("dump %+v, want %+v", got, want)
	}
	r.engine.Look(func(s modeltest.State) {
		if c := s.AFPackets[uint32(one.SwIfIndex)]; c != (port.AFPacketConfig{
			Name:    "weft0",
			Offload: true,
			SetUp:   true,
		}) {
			t.Errorf("first: %+v", c)
		}
		if c := s.AFPackets[uint32(two.SwIfIndex)]; c != (port.AFPacketConfig{
			Name:        "weft1",
			QdiscBypass: true,
			SetUp:       true,
		}) {
			t.Errorf("second: %+v", c)
		}
	})
	list := a.interfaces(t)
	first := list[len(list)-2]
	second := list[len(list)-1]
	if first.InterfaceName != "host-weft0" || first.InterfaceDevType != "af-packet" || first.L2Address != mac ||
		first.LinkMtu != 9000 || first.Flags != statusFlags(false, true) {
		t.Errorf("interface %+v", first)
	}
	if second.L2Address == mac || second.L2Address[0] != 2 || second.L2Address[1] != 0xfe {
		t.Errorf("random MAC %v", second.L2Address)
	}
	mustInvoke(t, a, a.links().AfPacketDelete, &af_packet.AfPacketDelete{HostIfName: "weft0"})
	if got := a.attached(t); !slices.Equal(got, want[1:]) {
		t.Errorf("dump after delete %+v", got)
	}
}

func TestAFPacketRetvals(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	ethernet := af_packet.AF_PACKET_API_MODE_ETHERNET
	taken := mustInvoke(t, a, a.links().AfPacketCreateV3, &af_packet.AfPacketCreateV3{
		Mode:       ethernet,
		HostIfName: "taken",
	})
	for _, c := range []struct {
		rule    string
		request af_packet.AfPacketCreateV3
		fail    error
		want    api.VPPApiError
		index   interface_types.InterfaceIndex
	}{
		{
			"a link that is already attached", af_packet.AfPacketCreateV3{Mode: ethernet, HostIfName: "taken"}, nil,
			api.IF_ALREADY_EXISTS, taken.SwIfIndex,
		},
		{
			"mode IP", af_packet.AfPacketCreateV3{Mode: af_packet.AF_PACKET_API_MODE_IP, HostIfName: "x"}, nil,
			api.UNSUPPORTED, noInterface,
		},
		{"no mode", af_packet.AfPacketCreateV3{HostIfName: "x"}, nil, api.INVALID_VALUE, noInterface},
		{"no name", af_packet.AfPacketCreateV3{Mode: ethernet}, nil, api.INVALID_INTERFACE, noInterface},
		{
			"a name that is too long", af_packet.AfPacketCreateV3{Mode: ethernet, HostIfName: "sixteen-bytes-xx"}, nil,
			api.INVALID_INTERFACE, noInterface,
		},
		{
			"seventeen queues", af_packet.AfPacketCreateV3{Mode: ethernet, HostIfName: "x", NumTxQueues: 17}, nil,
			api.UNSUPPORTED, noInterface,
		},
		{
			"no such link", af_packet.AfPacketCreateV3{Mode: ethernet, HostIfName: "x"}, port.ErrNoLink,
			api.INVALID_INTERFACE, noInterface,
		},
		{
			"the kernel refuses", af_packet.AfPacketCreateV3{Mode: ethernet, HostIfName: "x"}, errors.New("no"),
			api.SYSCALL_ERROR_1, noInterface,
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r.engine.FailPorts(c.fail)
			reply, err := invoke(t, a, a.links().AfPacketCreateV3, &c.request)
			if !errors.Is(err, c.want) || reply.SwIfIndex != c.index {
				t.Errorf("got %v, index %d", err, reply.SwIfIndex)
			}
		})
	}
	if _, err := invoke(t, a, a.links().AfPacketDelete, &af_packet.AfPacketDelete{HostIfName: "x"}); !errors.Is(err,
		api.SYSCALL_ERROR_1) {
		t.Errorf("delete of an unknown link: %v", err)
	}
	if list := a.attached(t); len(list) != 1 {
		t.Errorf("left: %+v", list)
	}
}
