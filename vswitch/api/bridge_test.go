package api

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// bridger is a client for the messages of bridge domains.
type bridger struct {
	*testClient
	l2     l2.RPCService
	model  *model.Model
	engine *modeltest.Engine
}

func newBridger(t *testing.T) *bridger {
	t.Helper()
	r := start(t, Limits{})
	conn := r.connect(t)
	return &bridger{newTestClient(t.Context(), conn), l2.NewServiceClient(conn), r.model, r.engine}
}

func (b *bridger) add(t testingT, id uint32) (uint32, error) {
	t.Helper()
	reply, err := invoke(t, b.testClient, b.l2.BridgeDomainAddDelV2, &l2.BridgeDomainAddDelV2{
		IsAdd:   true,
		BdID:    id,
		Learn:   true,
		Forward: true,
		Flood:   true, UuFlood: true, MacAge: 5, BdTag: "a network",
	})
	return reply.BdID, err
}

func (b *bridger) del(t testingT, id uint32) error {
	t.Helper()
	_, err := invoke(t, b.testClient, b.l2.BridgeDomainAddDelV2, &l2.BridgeDomainAddDelV2{BdID: id})
	return err
}

func (b *bridger) join(t testingT, req l2.SwInterfaceSetL2Bridge) error {
	t.Helper()
	req.Enable = true
	_, err := invoke(t, b.testClient, b.l2.SwInterfaceSetL2Bridge, &req)
	return err
}

func (b *bridger) leave(t testingT, index interface_types.InterfaceIndex) error {
	t.Helper()
	_, err := invoke(t, b.testClient, b.l2.SwInterfaceSetL2Bridge, &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index})
	return err
}

func (b *bridger) bridges(t testingT, id uint32) []*l2.BridgeDomainDetails {
	t.Helper()
	s, err := b.l2.BridgeDomainDump(b.context, &l2.BridgeDomainDump{BdID: id, SwIfIndex: allInterfaces})
	return collect[*l2.BridgeDomainDetails](t, s, err)
}

func (b *bridger) macs(t testingT, id uint32) []*l2.L2FibTableDetails {
	t.Helper()
	s, err := b.l2.L2FibTableDump(b.context, &l2.L2FibTableDump{BdID: id})
	return collect[*l2.L2FibTableDetails](t, s, err)
}

func (b *bridger) tap(t testingT) interface_types.InterfaceIndex {
	t.Helper()
	reply, err := invoke(t, b.testClient, b.taps.TapCreateV3, &tapv2.TapCreateV3{ID: ^uint32(0), UseRandomMac: true})
	if err != nil {
		t.Fatalf("create tap: %v", err)
	}
	b.setUp(t, reply.SwIfIndex, true)
	return reply.SwIfIndex
}

func TestBridgeDumpReturnsWhatWasAdded(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	loop := b.loopback(t)
	if id, err := b.add(t, ^uint32(0)); id != 1 || err != nil {
		t.Fatalf("lowest free id: %d, %v", id, err)
	}
	for _, req := range []l2.SwInterfaceSetL2Bridge{
		{RxSwIfIndex: tap, BdID: 1, Shg: 4}, {RxSwIfIndex: loop, BdID: 1, PortType: l2.L2_API_PORT_TYPE_BVI},
	} {
		if err := b.join(t, req); err != nil {
			t.Fatal(err)
		}
	}
	d := b.bridges(t, ^uint32(0))
	if len(d) != 1 {
		t.Fatalf("%+v", d)
	}
	members := []l2.BridgeDomainSwIf{{SwIfIndex: loop}, {SwIfIndex: tap, Shg: 4}}
	if d := d[0]; d.BdID != 1 || !d.Learn || !d.Flood || !d.UuFlood || !d.Forward || d.ArpTerm || d.ArpUfwd ||
		d.MacAge != 5 ||
		d.BdTag != "a network" || d.BviSwIfIndex != loop || d.UuFwdSwIfIndex != allInterfaces ||
		!slices.Equal(d.SwIfDetails, members) {
		t.Errorf("%+v", d)
	}
	for _, req := range []l2.BridgeDomainDump{
		{SwIfIndex: allInterfaces}, {BdID: 1}, {BdID: 9, SwIfIndex: allInterfaces},
	} {
		s, err := b.l2.BridgeDomainDump(t.Context(), &req)
		if list := collect[*l2.BridgeDomainDetails](t, s, err); len(list) != 0 {
			t.Errorf("%+v: %+v", req, list)
		}
	}
}

func TestJoinCreatesMissingBridgeDomain(t *testing.T) {
	b := newBridger(t)
	if err := b.join(t, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: b.tap(t), BdID: 70}); err != nil {
		t.Fatal(err)
	}
	if d := b.bridges(t, 70); len(d) != 1 || !d[0].Learn || !d[0].Flood || !d[0].UuFlood || !d[0].Forward ||
		d[0].MacAge != 0 || d[0].BdTag != "" {
		t.Errorf("%+v", d)
	}
	if _, err := b.add(t, 70); err != api.BD_ALREADY_EXISTS { //nolint:errorlint // the number itself
		t.Errorf("second add: %v", err)
	}
}

func TestBridgeRetvals(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	loop := b.loopback(t)
	second := b.loopback(t)
	if _, err := b.add(t, 1); err != nil {
		t.Fatal(err)
	}
	bvi := l2.SwInterfaceSetL2Bridge{RxSwIfIndex: loop, BdID: 1, PortType: l2.L2_API_PORT_TYPE_BVI}
	if err := b.join(t, bvi); err != nil {
		t.Fatal(err)
	}
	adding := func(id uint32) func() error { return func() error { _, err := b.add(t, id); return err } }
	deleting := func(id uint32) func() error { return func() error { return b.del(t, id) } }
	joining := func(req l2.SwInterfaceSetL2Bridge) func() error { return func() error { return b.join(t, req) } }
	checkRefusals(t, map[string]refusal{
		"an existing bridge domain":             {adding(1), api.BD_ALREADY_EXISTS},
		"bridge domain 0":                       {adding(0), api.BD_ALREADY_EXISTS},
		"an id above 16M":                       {adding(1 << 24), api.BD_ID_EXCEED_MAX},
		"deleting 0":                            {deleting(0), api.BD_NOT_MODIFIABLE},
		"deleting an unknown bridge domain":     {deleting(9), api.NO_SUCH_ENTRY},
		"deleting id ~0":                        {deleting(^uint32(0)), api.NO_SUCH_ENTRY},
		"deleting a bridge domain with members": {deleting(1), api.BD_IN_USE},
		"ARP termination": {
			calling(t, b.testClient, b.l2.BridgeDomainAddDelV2, &l2.BridgeDomainAddDelV2{
				IsAdd:   true,
				BdID:    3,
				ArpTerm: true,
			}),
			api.UNSUPPORTED,
		},
		"an unknown interface": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: unknown, BdID: 1}), api.INVALID_SW_IF_INDEX,
		},
		"joining an id above 16M": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap, BdID: 1 << 24}), api.BD_ID_EXCEED_MAX,
		},
		"joining 0": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap}), api.BD_NOT_MODIFIABLE,
		},
		"local0": {joining(l2.SwInterfaceSetL2Bridge{BdID: 1}), api.NON_ETHERNET},
		"an unknown port type": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap, BdID: 1, PortType: 3}), api.INVALID_VALUE,
		},
		"unknown unicast forwarding": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap, BdID: 1, PortType: l2.L2_API_PORT_TYPE_UU_FWD}),
			api.UNSUPPORTED,
		},
		"a tap as BVI": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap, BdID: 8, PortType: l2.L2_API_PORT_TYPE_BVI}),
			api.UNSUPPORTED,
		},
		"a second BVI": {
			joining(l2.SwInterfaceSetL2Bridge{RxSwIfIndex: second, BdID: 1, PortType: l2.L2_API_PORT_TYPE_BVI}),
			api.BD_ALREADY_HAS_BVI,
		},
		"the same BVI again":                {joining(bvi), nil},
		"leaving without membership":        {func() error { return b.leave(t, tap) }, nil},
		"leaving with an unknown interface": {func() error { return b.leave(t, unknown) }, api.INVALID_SW_IF_INDEX},
	})
	if list := b.bridges(t, ^uint32(0)); len(list) != 1 || len(list[0].SwIfDetails) != 1 {
		t.Errorf("rejected calls left %+v", list)
	}
}

func TestL2FIBRetvals(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	routed := b.tap(t)
	if err := b.join(t, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tap, BdID: 1}); err != nil {
		t.Fatal(err)
	}
	change := func(req l2.L2fibAddDel) func() error {
		return calling(t, b.testClient, b.l2.L2fibAddDel, &req)
	}
	age := func(id uint32) func() error {
		return calling(t, b.testClient, b.l2.BridgeDomainSetMacAge, &l2.BridgeDomainSetMacAge{BdID: id, MacAge: 1})
	}
	flags := func(id uint32, f l2.BdFlags) func() error {
		return calling(t, b.testClient, b.l2.BridgeFlags, &l2.BridgeFlags{BdID: id, IsSet: true, Flags: f})
	}
	for rule, call := range map[string]func() error{
		"a filter needs no interface, and is deleted without one": func() error {
			return cmp.Or(change(l2.L2fibAddDel{IsAdd: true, BdID: 1, SwIfIndex: unknown, FilterMac: true})(),
				change(l2.L2fibAddDel{BdID: 1})())
		},
		"0 has nothing to flush": calling(t, b.testClient, b.l2.L2fibFlushBd, &l2.L2fibFlushBd{}),
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
	checkRefusals(t, map[string]refusal{
		"an entry of an unknown bridge domain": {
			change(l2.L2fibAddDel{IsAdd: true, BdID: 9, SwIfIndex: tap}), api.NO_SUCH_ENTRY,
		},
		"an entry on an unknown interface": {
			change(l2.L2fibAddDel{IsAdd: true, BdID: 1, SwIfIndex: unknown}), api.INVALID_SW_IF_INDEX,
		},
		"an entry on a layer 3 interface": {
			change(l2.L2fibAddDel{IsAdd: true, BdID: 1, SwIfIndex: routed}), api.INVALID_SW_IF_INDEX,
		},
		"deleting an unknown entry":           {change(l2.L2fibAddDel{BdID: 1, Mac: [6]byte{7}}), api.NO_SUCH_ENTRY},
		"the age of 0":                        {age(0), api.BD_NOT_MODIFIABLE},
		"the age of an unknown bridge domain": {age(9), api.NO_SUCH_ENTRY},
		"flags of 0":                          {flags(0, 1), api.BD_NOT_MODIFIABLE},
		"flags of an unknown bridge domain":   {flags(9, 1), api.NO_SUCH_ENTRY},
		"the flag of ARP termination":         {flags(1, l2.BRIDGE_API_FLAG_ARP_TERM), api.UNSUPPORTED},
		"flushing an unknown bridge domain": {
			calling(t, b.testClient, b.l2.L2fibFlushBd, &l2.L2fibFlushBd{BdID: 9}), api.NO_SUCH_ENTRY,
		},
		"flushing on an unknown interface": {
			calling(t, b.testClient, b.l2.L2fibFlushInt, &l2.L2fibFlushInt{SwIfIndex: unknown}),
			api.INVALID_SW_IF_INDEX,
		},
	})
}

func TestBridgeFlagsAndAgeAreSetAndDumped(t *testing.T) {
	b := newBridger(t)
	if _, err := b.add(t, 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set   bool
		flags l2.BdFlags
		want  uint32 // as VPP 25.10 computes it: all ones but for what is off
	}{{false, l2.BRIDGE_API_FLAG_FLOOD, ^uint32(0x58 | 0x4)}, {true, l2.BRIDGE_API_FLAG_FLOOD, ^uint32(0x58)},
		{false, l2.BRIDGE_API_FLAG_LEARN | l2.BRIDGE_API_FLAG_UU_FLOOD, ^uint32(0x58 | 0x200 | 0x20)}, {
			false, l2.BRIDGE_API_FLAG_FWD, ^uint32(0x58 | 0x200 | 0x20 | 0x80),
		}} {
		reply, err := invoke(t, b.testClient, b.l2.BridgeFlags, &l2.BridgeFlags{BdID: 1, IsSet: c.set, Flags: c.flags})
		if err != nil || reply.ResultingFeatureBitmap != c.want {
			t.Errorf("%+v: %#x, %v", c, reply.ResultingFeatureBitmap, err)
		}
	}
	mustInvoke(t, b.testClient, b.l2.BridgeDomainSetMacAge, &l2.BridgeDomainSetMacAge{BdID: 1, MacAge: 9})
	if d := b.bridges(t, 1)[0]; !d.Flood || d.Learn || d.UuFlood || d.Forward || d.MacAge != 9 {
		t.Errorf("%+v", d)
	}
	b.engine.Look(func(s modeltest.State) {
		if e := s.Bridges[1]; !e.Flood || e.Learn || e.UUFlood || e.Forward || e.Age.Minutes() != 9 {
			t.Errorf("the packet path has %+v", e)
		}
	})
}

func TestBVIHasStaticL2FIBEntryThatFollowsItsMAC(t *testing.T) {
	b := newBridger(t)
	loop := b.loopback(t)
	if err := b.join(t, l2.SwInterfaceSetL2Bridge{
		RxSwIfIndex: loop,
		BdID:        1,
		PortType:    l2.L2_API_PORT_TYPE_BVI,
	}); err != nil {
		t.Fatal(err)
	}
	for _, mac := range [][6]byte{{0xde, 0xad}, {2, 0, 0, 0, 0, 5}} {
		if mac[0] == 2 {
			mustInvoke(t, b.testClient, b.ifs.SwInterfaceSetMacAddress, &interfaces.SwInterfaceSetMacAddress{
				SwIfIndex:  loop,
				MacAddress: mac,
			})
		}
		want := l2.L2FibTableDetails{BdID: 1, Mac: mac, SwIfIndex: loop, StaticMac: true, BviMac: true}
		if list := b.macs(t, 1); len(list) != 1 || *list[0] != want {
			t.Errorf("%+v, wanted %+v", list, want)
		}
		b.engine.Look(func(s modeltest.State) {
			fixed := []forward.ConfiguredMAC{{MAC: frame.MAC(mac), Interface: uint32(loop), Static: true}}
			if e := s.Bridges[1]; e.BVI != uint32(loop) || len(e.Members) != 0 || !slices.Equal(e.Configured, fixed) {
				t.Errorf("the packet path has %+v", e)
			}
		})
	}
	if err := b.leave(t, loop); err != nil || len(b.macs(t, 1)) != 0 {
		t.Errorf("after leaving: %v, %+v", err, b.macs(t, 1))
	}
}

func TestBridgeCommands(t *testing.T) {
	b := newBridger(t)
	cli := vlib.NewServiceClient(b.conn)
	check := func(command string, want ...string) {
		t.Helper()
		reply, err := invoke(t, b.testClient, cli.CliInband, &vlib.CliInband{Cmd: command})
		for _, w := range want {
			if err != nil || !strings.Contains(strings.Join(strings.Fields(reply.Reply), " "), w) {
				t.Errorf("%q: no %q, %v\n%s", command, w, err, reply.Reply)
			}
		}
	}
	check("show bridge-domain", "no bridge-domains in use")
	check("show bridge-domain 5", "No such bridge domain 5")
	check("show bridge-domain 0", "default bridge domain")
	check("show bridge-domain x", "unknown input")
	check("show l2fib", "no l2fib entries")
	check("show l2fib bd_id 5", "bridge domain id 5 doesn't exist")
	check("show l2fib nonsense", "unknown input")
	tap := b.tap(t)
	loop := b.loopback(t)
	if _, err := b.add(t, 5); err != nil {
		t.Fatal(err)
	}
	for _, req := range []l2.SwInterfaceSetL2Bridge{
		{RxSwIfIndex: tap, BdID: 5, Shg: 4}, {RxSwIfIndex: loop, BdID: 5, PortType: l2.L2_API_PORT_TYPE_BVI},
	} {
		if err := b.join(t, req); err != nil {
			t.Fatal(err)
		}
	}
	b.engine.Learn(5, frame.MAC{2, 0xaa}, uint32(tap))
	check("show bridge-domain",
		strings.Join([]string{"5", "1", "5", "on", "on", "flood", "on", "off", "off", "1", "loop0"}, " "))
	check("show bridge-domain 5 detail", "tap0 1 4 - * none", "loop0 2 0 * * none", "BD-Tag: a network")
	check("show l2fib", "L2FIB total/learned entries: 2/1")
	check("show l2fib all", "02:aa:00:00:00:00 1 1 0 - - - tap0", "de:ad:00:00:00:00 1 2 no * - * loop0")
	check("show l2fib learn", "tap0 L2FIB")
	check("show l2fib add", "loop0 L2FIB")
	check("show l2fib bd_id 5", "tap0", "loop0")
}
