package conformance

import (
	"net"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
)

// Constructors of messages that many cases use. They panic on an invalid constant.

type index = interface_types.InterfaceIndex

func mac(s string) (m ethernet_types.MacAddress) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	copy(m[:], hw)
	return m
}

func addr(s string) ip_types.Address {
	a, err := ip_types.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func ip6(s string) ip_types.IP6Address {
	a := addr(s)
	return a.Un.GetIP6()
}

func prefix(s string) ip_types.Prefix {
	p, err := ip_types.ParsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}

func addressMessage(on index, s string, add bool) *interfaces.SwInterfaceAddDelAddress {
	p, err := ip_types.ParseAddressWithPrefix(s)
	if err != nil {
		panic(err)
	}
	return &interfaces.SwInterfaceAddDelAddress{SwIfIndex: on, IsAdd: add, Prefix: p}
}

func setUp(i index, up bool) *interfaces.SwInterfaceSetFlags {
	m := &interfaces.SwInterfaceSetFlags{SwIfIndex: i}
	if up {
		m.Flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	return m
}

func loopback(instance uint32, m string) *interfaces.CreateLoopbackInstance {
	return &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: instance, MacAddress: mac(m)}
}

func dumpOf(i index) *interfaces.SwInterfaceDump { return &interfaces.SwInterfaceDump{SwIfIndex: i} }

func tableMessage(id uint32, six, add bool) *ip.IPTableAddDelV2 {
	return &ip.IPTableAddDelV2{IsAdd: add, Table: ip.IPTable{TableID: id, IsIP6: six, Name: "pods"}}
}

func setTable(i index, id uint32, six bool) *interfaces.SwInterfaceSetTable {
	return &interfaces.SwInterfaceSetTable{SwIfIndex: i, VrfID: id, IsIPv6: six}
}

// via returns a path through an interface, with a next hop unless that is "".
func via(i index, nextHop string, six bool) fib_types.FibPath {
	p := fib_types.FibPath{SwIfIndex: uint32(i), Weight: 1, Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
	if six {
		p.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	if nextHop != "" {
		p.Nh.Address = addr(nextHop).Un
	}
	return p
}

// special returns a path of a type without interface.
func special(kind fib_types.FibPathType, six bool) fib_types.FibPath {
	p := via(none, "", six)
	p.Type = kind
	return p
}

func routeMessage(table uint32, to string, paths ...fib_types.FibPath) *ip.IPRouteAddDel {
	return &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{
		TableID: table, Prefix: prefix(to), NPaths: uint8(len(paths)), Paths: paths}}
}

// deleteRoute removes the whole route, or the paths.
func deleteRoute(table uint32, to string, paths ...fib_types.FibPath) *ip.IPRouteAddDel {
	m := routeMessage(table, to, paths...)
	m.IsAdd = false
	m.IsMultipath = len(paths) > 0
	return m
}

// apiSource is the number of the source of API routes.
const apiSource = 8

func routesOf(table uint32, six bool) *ip.IPRouteV2Dump {
	return &ip.IPRouteV2Dump{Src: apiSource, Table: ip.IPTable{TableID: table, IsIP6: six}}
}

// allRoutes lists the routes of all sources.
func allRoutes(table uint32, six bool) *ip.IPRouteV2Dump {
	return &ip.IPRouteV2Dump{Table: ip.IPTable{TableID: table, IsIP6: six}}
}

func neighbourMessage(i index, a, m string, add bool) *ip_neighbor.IPNeighborAddDel {
	return &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: i, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: mac(m), IPAddress: addr(a)}}
}

func neighboursOf(i index, six bool) *ip_neighbor.IPNeighborDump {
	m := &ip_neighbor.IPNeighborDump{SwIfIndex: i}
	if six {
		m.Af = ip_types.ADDRESS_IP6
	}
	return m
}

func addressesOf(i index, six bool) *ip.IPAddressDump {
	return &ip.IPAddressDump{SwIfIndex: i, IsIPv6: six}
}

// each sends messages and records the answers, including errors.
func (l *lab) each(messages ...api.Message) {
	l.Helper()
	for _, m := range messages {
		l.ask(m)
	}
}

// chooses sends a request twice and records whether the dataplane chooses different numbers. The numbers differ from
// run to run.
func (l *lab) chooses(m api.Message, number func(reply api.Message) uint32) {
	l.Helper()
	seen := map[uint32]bool{0: true, anyID: true}
	for range 2 {
		answers, err := l.client.ask(m)
		if err != nil || result(first(answers)) != "ok" {
			l.Fatalf("%s: %v %v", m.GetMessageName(), answers, err)
		}
		n := number(first(answers))
		l.note("%s chooses a new number: %t", m.GetMessageName(), !seen[n])
		seen[n] = true
	}
}

// pods makes table 7 for both families, and in it a loopback "gate" that is up.
func (l *lab) pods() index {
	l.Helper()
	for _, six := range []bool{false, true} {
		l.must(tableMessage(7, six, true))
	}
	gate := l.loop(0, "gate")
	l.must(setTable(gate, 7, false))
	l.must(setTable(gate, 7, true))
	return gate
}

// loop makes a loopback that is up.
func (l *lab) loop(instance uint32, name string) index {
	l.Helper()
	i := l.make(name, loopback(instance, "02:00:00:00:01:0"+string(rune('0'+instance))))
	l.must(setUp(i, true))
	return i
}
