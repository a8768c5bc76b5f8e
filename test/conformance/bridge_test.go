package conformance

import (
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/l2"
)

func bridgeMessage(id uint32, add bool) *l2.BridgeDomainAddDelV2 {
	return &l2.BridgeDomainAddDelV2{
		IsAdd:   add,
		BdID:    id,
		Learn:   true,
		Forward: true,
		Flood:   true,
		UuFlood: true,
		MacAge:  5,
		BdTag:   "weft:blue",
	}
}

func bridges(id uint32) *l2.BridgeDomainDump {
	return &l2.BridgeDomainDump{BdID: id, SwIfIndex: none}
}

func join(i index, id uint32) *l2.SwInterfaceSetL2Bridge {
	return &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i, BdID: id, Enable: true}
}

func joinAs(i index, id uint32, port l2.L2PortType, group uint8) *l2.SwInterfaceSetL2Bridge {
	m := join(i, id)
	m.PortType = port
	m.Shg = group
	return m
}

func leave(i index, id uint32) *l2.SwInterfaceSetL2Bridge {
	return &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i, BdID: id}
}

func l2Entry(id uint32, m string, i index, add bool) *l2.L2fibAddDel {
	return &l2.L2fibAddDel{BdID: id, Mac: mac(m), SwIfIndex: i, IsAdd: add, StaticMac: true}
}

func l2Entries(id uint32) *l2.L2FibTableDump { return &l2.L2FibTableDump{BdID: id} }

func bridgeFlags(id uint32, set bool, flags l2.BdFlags) *l2.BridgeFlags {
	return &l2.BridgeFlags{BdID: id, IsSet: set, Flags: flags}
}

func macAge(id uint32, minutes uint8) *l2.BridgeDomainSetMacAge {
	return &l2.BridgeDomainSetMacAge{BdID: id, MacAge: minutes}
}

const bvi = l2.L2_API_PORT_TYPE_BVI

var bridgeCases = []testCase{
	{name: "bridge: bridge domains are created, dumped and deleted", run: func(l *lab) {
		plain := &l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 9}
		l.each(bridges(anyID), bridgeMessage(5, true), bridgeMessage(5, true), plain, bridges(anyID), bridges(5),
			bridges(77), bridges(0),
			&l2.BridgeDomainDump{BdID: 5}, bridgeMessage(5, false), bridgeMessage(5, false), bridges(anyID))
	}},
	{name: "bridge: the dataplane chooses the number of a bridge domain", run: func(l *lab) {
		l.chooses(bridgeMessage(anyID, true), func(reply api.Message) uint32 {
			return reply.(*l2.BridgeDomainAddDelV2Reply).BdID
		})
	}},
	{name: "bridge: refusals", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		c := l.loop(2, "c")
		l.must(bridgeMessage(1, true))
		l.each(bridgeMessage(0, true), bridgeMessage(1<<24, true), bridgeMessage(1<<24-1, true),
			bridgeMessage(0, false), bridgeMessage(9, false), bridgeMessage(anyID, false))
		l.each(joinAs(b, 1, bvi, 0), bridgeMessage(1, false), join(unknown, 1), join(a, 1<<24), join(a, 0), join(0, 1),
			joinAs(a, 1, 3, 0),
			joinAs(c, 1, bvi, 0), joinAs(b, 1, bvi, 0), leave(a, 1), leave(unknown, 1), bridges(anyID))
	}},
	{name: "bridge: joining a bridge domain that does not exist creates it", run: func(l *lab) {
		a := l.loop(0, "a")
		l.each(join(a, 70), bridges(70), bridgeMessage(70, true), bridges(70), leave(a, 70), bridges(70),
			bridgeMessage(70, false), bridges(anyID))
	}},
	{name: "bridge: members join, move, leave and are deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		c := l.loop(2, "c")
		l.must(bridgeMessage(1, true))
		l.must(bridgeMessage(2, true))
		l.each(joinAs(a, 1, 0, 4), joinAs(b, 1, bvi, 0), join(c, 1), bridges(1), join(a, 1), bridges(1), join(a, 2),
			bridges(1), bridges(2),
			leave(a, 1), bridges(2), leave(a, 2), bridges(2), join(b, 1), bridges(1), joinAs(b, 2, bvi, 0), bridges(1),
			bridges(2),
			&interfaces.DeleteLoopback{SwIfIndex: c}, bridges(1), bridgeMessage(1, false), bridgeMessage(2, false),
			&interfaces.DeleteLoopback{SwIfIndex: b}, bridges(2), bridgeMessage(2, false))
	}},
	{name: "bridge: flags", run: func(l *lab) {
		l.must(bridgeMessage(1, true))
		l.each(bridgeFlags(1, false, l2.BRIDGE_API_FLAG_FLOOD), bridgeFlags(1, true, l2.BRIDGE_API_FLAG_FLOOD),
			bridgeFlags(1, false, l2.BRIDGE_API_FLAG_LEARN|l2.BRIDGE_API_FLAG_UU_FLOOD), bridges(1),
			bridgeFlags(1, false, l2.BRIDGE_API_FLAG_FWD), bridges(1),
			bridgeFlags(0, true, 1), bridgeFlags(9, true, 1), bridgeFlags(1, true, 0), bridges(1))
	}},
	{name: "bridge: MAC age", run: func(l *lab) {
		l.must(bridgeMessage(1, true))
		l.each(macAge(1, 9), bridges(1), macAge(1, 0), bridges(1), macAge(0, 1), macAge(9, 1))
	}},
	{name: "bridge: entries of the MAC table", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		c := l.loop(2, "c")
		l.must(bridgeMessage(1, true))
		for _, i := range []index{a, b} {
			l.must(join(i, 1))
		}
		filter := l2Entry(1, "02:00:00:00:00:0f", unknown, true)
		filter.FilterMac = true
		dynamic := l2Entry(1, "02:00:00:00:00:0d", a, true)
		dynamic.StaticMac = false
		l.each(l2Entries(1), l2Entry(1, "02:00:00:00:00:09", a, true), l2Entry(1, "02:00:00:00:00:09", b, true),
			l2Entries(1), filter, dynamic, l2Entries(1), l2Entries(anyID), l2Entries(9), l2Entries(0),
			l2Entry(9, "02:00:00:00:00:01", a, true), l2Entry(1, "02:00:00:00:00:02", unknown, true),
			l2Entry(1, "02:00:00:00:00:03", c, true),
			l2Entry(1, "02:00:00:00:00:04", a, false), l2Entry(9, "02:00:00:00:00:04", a, false),
			l2Entry(1, "01:00:00:00:00:04", a, true),
			l2Entry(1, "02:00:00:00:00:09", a, false), l2Entry(1, "02:00:00:00:00:0f", 0, false), l2Entries(1))
	}},
	{name: "bridge: entries are deleted with member and bridge domain", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		l.must(bridgeMessage(1, true))
		l.must(join(a, 1))
		l.must(join(b, 1))
		l.must(l2Entry(1, "02:00:00:00:00:09", a, true))
		l.must(l2Entry(1, "02:00:00:00:00:08", b, true))
		l.each(leave(a, 1), l2Entries(1), join(a, 1), l2Entries(1), &interfaces.DeleteLoopback{SwIfIndex: b},
			l2Entries(1), leave(a, 1), bridgeMessage(1, false),
			l2Entries(1), bridgeMessage(1, true), l2Entries(1))
	}},
	{name: "bridge: flushing the MAC table", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(join(a, 1))
		l.must(l2Entry(1, "02:00:00:00:00:09", a, true))
		l.each(&l2.L2fibFlushBd{BdID: 1}, l2Entries(1), &l2.L2fibFlushBd{BdID: 9}, &l2.L2fibFlushBd{},
			&l2.L2fibFlushInt{SwIfIndex: a},
			&l2.L2fibFlushInt{SwIfIndex: unknown})
	}},
	{name: "bridge: the MAC of a BVI", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(bridgeMessage(1, true))
		l.must(joinAs(a, 1, bvi, 0))
		l.each(l2Entries(1), setMAC(a, "02:00:00:00:00:99"), l2Entries(1), leave(a, 1), l2Entries(1),
			joinAs(a, 1, bvi, 0), l2Entries(1),
			&interfaces.DeleteLoopback{SwIfIndex: a}, l2Entries(1), bridges(1))
	}},
	{name: "bridge: addresses of a BVI", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.each(joinAs(a, 1, bvi, 0), addressesOf(a, false), allRoutes(0, false), leave(a, 1), addressesOf(a, false),
			join(a, 1), addressesOf(a, false), allRoutes(0, false), dumpOf(a))
	}},
}
