package conformance

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
)

// unreachKills: VPP 25.10 crashes on an ICMP path in a table other than 0, because fib_api_path_decode leaves interface
// 0 and the path counts as attached to local0 in another table.
var unreachKills = map[string]string{"25.10": "SIGSEGV in fib_table_lookup_exact_match, fixed by 2d25978a8c5"}

// mplsKills: VPP crashes on a lookup in an MPLS table that does not exist.
var mplsKills = map[string]string{
	"25.10": "SIGSEGV in fib_table_lock",
	"26.06": "SIGSEGV as in 25.10",
}

const (
	drop     = fib_types.FIB_API_PATH_TYPE_DROP
	local    = fib_types.FIB_API_PATH_TYPE_LOCAL
	unreach  = fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH
	prohibit = fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT
)

func weighted(p fib_types.FibPath, weight, preference uint8) fib_types.FibPath {
	p.Weight = weight
	p.Preference = preference
	return p
}

// in returns a path that continues the lookup in a table.
func in(table uint32, six bool) fib_types.FibPath {
	p := via(none, "", six)
	p.TableID = table
	return p
}

var routeCases = []testCase{
	{name: "route: tables", run: func(l *lab) {
		dump := &ip.IPTableDump{}
		l.each(dump, tableMessage(7, false, true), tableMessage(7, false, true), tableMessage(7, true, true), dump,
			&ip.IPTableAddDelV2{IsAdd: true, Table: ip.IPTable{TableID: 8}}, dump, allRoutes(7, false),
			allRoutes(7, true),
			tableMessage(0, false, true), tableMessage(0, false, false), dump, allRoutes(9, false),
			tableMessage(7, false, false), tableMessage(7, false, false), dump, tableMessage(9, false, false),
			tableMessage(anyID, false, true), dump)
	}},
	{name: "route: an attached host route is read back with its own address as next hop", run: func(l *lab) {
		a := l.pods()
		for _, c := range []struct {
			to  string
			six bool
		}{{"10.1.0.1/32", false}, {"fd01::1/128", true}, {"10.2.0.0/24", false}, {"fd02::/64", true}} {
			l.ask(routeMessage(7, c.to, via(a, "", c.six)))
		}
		l.each(routesOf(7, false), routesOf(7, true), deleteRoute(7, "10.1.0.1/32"), deleteRoute(7, "10.1.0.1/32"),
			routesOf(7, false))
	}},
	{name: "route: attached routes from an interface of another table", run: func(l *lab) {
		l.pods()
		b := l.loop(1, "b")
		l.each(routeMessage(7, "10.1.0.1/32", via(b, "", false)), routeMessage(7, "10.2.0.0/24", via(b, "", false)),
			routesOf(7, false), allRoutes(0, false))
	}},
	{name: "route: next hops", run: func(l *lab) {
		a := l.pods()
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.each(routeMessage(7, "10.1.0.0/16", via(a, "10.0.0.9", false)),
			routeMessage(7, "10.2.0.1/32", via(a, "10.0.0.9", false)),
			routeMessage(7, "0.0.0.0/0", via(a, "10.0.0.9", false)), routeMessage(7, "::/0", via(a, "fd00::9", true)),
			routeMessage(7, "fd01::/64", via(a, "fe80::9", true)),
			routeMessage(7, "10.3.0.0/16", via(none, "10.0.0.9", false)),
			routeMessage(7, "10.4.0.0/16", via(a, "fd00::9", true)),
			routeMessage(7, "fd04::/64", via(a, "10.0.0.9", false)),
			routesOf(7, false), routesOf(7, true), allRoutes(7, false))
	}},
	{name: "route: several paths", run: func(l *lab) {
		a := l.pods()
		b := l.loop(1, "b")
		l.must(setTable(b, 7, false))
		one := via(a, "10.0.0.8", false)
		two := via(b, "10.0.0.9", false)
		l.each(routeMessage(7, "10.1.0.0/16", weighted(one, 3, 0), two), routesOf(7, false),
			routeMessage(7, "10.1.0.0/16", two), routesOf(7, false),
			routeMessage(7, "10.2.0.0/16", weighted(one, 0, 0)),
			routeMessage(7, "10.3.0.0/16", weighted(one, 1, 0), weighted(two, 1, 1)),
			routeMessage(7, "10.4.0.0/16", one, one), routesOf(7, false))
	}},
	{name: "route: paths are added and removed one by one", run: func(l *lab) {
		a := l.pods()
		b := l.loop(1, "b")
		l.must(setTable(b, 7, false))
		one := via(a, "10.0.0.8", false)
		two := via(b, "10.0.0.9", false)
		multi := routeMessage(7, "10.1.0.0/16", one)
		multi.IsMultipath = true
		more := routeMessage(7, "10.1.0.0/16", two)
		more.IsMultipath = true
		l.each(multi, routesOf(7, false), more, more, routesOf(7, false), deleteRoute(7, "10.1.0.0/16", one),
			routesOf(7, false),
			deleteRoute(7, "10.1.0.0/16", one), routesOf(7, false), deleteRoute(7, "10.1.0.0/16", two),
			routesOf(7, false), deleteRoute(7, "10.1.0.0/16", two))
	}},
	{name: "route: dropping routes", run: func(l *lab) {
		l.pods()
		l.each(routeMessage(7, "10.1.0.0/16", special(drop, false)), routeMessage(7, "fd01::/64", special(drop, true)),
			routeMessage(0, "10.1.0.0/16", special(drop, false)), routesOf(7, false), routesOf(7, true),
			routesOf(0, false),
			deleteRoute(7, "10.1.0.0/16"), routesOf(7, false))
	}},
	{name: "route: unreachable in the default table", run: func(l *lab) {
		l.each(routeMessage(0, "10.1.0.0/16", special(unreach, false)),
			routeMessage(0, "fd01::/64", special(unreach, true)),
			routeMessage(0, "10.2.0.0/16", special(prohibit, false)), routesOf(0, false), routesOf(0, true))
	}},
	{name: "route: unreachable in a table of pods", kills: unreachKills, run: func(l *lab) {
		l.pods()
		l.each(routeMessage(7, "10.1.0.0/16", special(unreach, false)),
			routeMessage(7, "fd01::/64", special(unreach, true)),
			routeMessage(7, "10.2.0.0/16", special(prohibit, false)), routesOf(7, false), routesOf(7, true),
			deleteRoute(7, "10.1.0.0/16"), routesOf(7, false))
	}},
	{name: "route: unreachable with a drop that is never preferred", run: func(l *lab) {
		a := l.pods()
		backup := weighted(special(drop, false), 1, 255)
		backup6 := weighted(special(drop, true), 1, 255)
		l.each(routeMessage(7, "10.1.0.0/16", special(unreach, false), backup),
			routeMessage(7, "fd01::/64", special(unreach, true), backup6),
			routesOf(7, false), routesOf(7, true), routeMessage(7, "10.2.0.0/16", via(a, "10.0.0.9", false), backup),
			routeMessage(7, "10.3.0.0/16", via(a, "10.0.0.9", false), special(drop, false)), routesOf(7, false),
			deleteRoute(7, "10.1.0.0/16"), routesOf(7, false))
	}},
	{name: "route: a route changes between forwarding and dropping", run: func(l *lab) {
		a := l.pods()
		l.each(routeMessage(7, "10.1.0.0/16", special(drop, false)),
			routeMessage(7, "10.1.0.0/16", via(a, "10.0.0.9", false)), routesOf(7, false),
			routeMessage(7, "10.1.0.0/16", special(drop, false)), routesOf(7, false))
	}},
	{name: "route: local routes", run: func(l *lab) {
		l.pods()
		l.each(routeMessage(7, "10.1.0.1/32", special(local, false)), routesOf(7, false))
	}},
	{name: "route: lookups in other tables", run: func(l *lab) {
		l.pods()
		l.each(routeMessage(7, "10.1.0.0/16", in(0, false)), routeMessage(0, "10.2.0.0/16", in(7, false)),
			routeMessage(7, "fd01::/64", in(0, true)),
			routeMessage(7, "10.3.0.0/16", in(9, false)), routesOf(7, false), routesOf(7, true), routesOf(0, false))
	}},
	{name: "route: refusals", run: func(l *lab) {
		a := l.pods()
		odd := routeMessage(7, "10.1.0.0/16", via(a, "", false))
		odd.Route.Prefix.Len = 33
		l.each(routeMessage(7, "10.1.0.0/16"), routeMessage(9, "10.1.0.0/16", via(a, "", false)),
			routeMessage(7, "10.1.0.0/16", via(unknown, "", false)),
			odd, deleteRoute(7, "10.9.0.0/16"), deleteRoute(9, "10.9.0.0/16"), deleteRoute(7, "0.0.0.0/0"),
			routesOf(7, false), routesOf(9, false), routesOf(9, true))
	}},
	{name: "route: an MPLS path without an MPLS table", kills: mplsKills, run: func(l *lab) {
		proto := via(l.pods(), "", false)
		proto.Proto = fib_types.FIB_API_PATH_NH_PROTO_MPLS
		l.ask(routeMessage(7, "10.1.0.0/16", proto))
	}},
	{name: "route: a prefix with host bits", run: func(l *lab) {
		a := l.pods()
		l.each(routeMessage(7, "10.1.2.3/16", via(a, "10.0.0.9", false)), routesOf(7, false),
			deleteRoute(7, "10.1.0.0/16"), routesOf(7, false))
	}},
	{name: "route: an API route for the prefix of an address", run: func(l *lab) {
		a := l.pods()
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.each(routeMessage(7, "10.0.0.0/24", via(a, "10.0.0.9", false)), routesOf(7, false), allRoutes(7, false),
			addressMessage(a, "10.0.0.1/24", false), routesOf(7, false), deleteRoute(7, "10.0.0.0/24"),
			allRoutes(7, false))
	}},
	{name: "route: routes of a deleted interface", run: func(l *lab) {
		a := l.pods()
		b := l.loop(1, "b")
		l.must(setTable(b, 7, false))
		l.must(routeMessage(7, "10.1.0.0/16", via(b, "10.0.0.9", false)))
		l.must(routeMessage(7, "10.2.0.1/32", via(b, "", false)))
		l.must(routeMessage(7, "10.3.0.0/16", via(a, "10.0.0.8", false), via(b, "10.0.0.9", false)))
		l.each(routesOf(7, false), &interfaces.DeleteLoopback{SwIfIndex: b}, routesOf(7, false))
		for _, to := range []string{"10.1.0.0/16", "10.2.0.1/32", "10.3.0.0/16"} {
			l.ask(deleteRoute(7, to))
		}
		l.ask(routesOf(7, false))
	}},
	{name: "route: routes of an interface that changes its table", run: func(l *lab) {
		a := l.pods()
		l.must(routeMessage(7, "10.1.0.0/16", via(a, "10.0.0.9", false)))
		l.must(routeMessage(7, "10.2.0.0/16", via(a, "", false)))
		l.each(setTable(a, 0, false), routesOf(7, false), allRoutes(0, false))
	}},
	{name: "route: sources", run: func(l *lab) { l.each(routeSources()...) }},
	{name: "neighbour: static neighbours are added, replaced and deleted", run: func(l *lab) {
		a := l.pods()
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.each(neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:09", true),
			neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:08", true),
			neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:08", true),
			neighbourMessage(a, "10.1.0.9", "02:00:00:00:00:09", true),
			neighbourMessage(a, "fd00::9", "02:00:00:00:00:09", true),
			neighbourMessage(a, "fe80::9", "02:00:00:00:00:09", true),
			neighboursOf(none, false), neighboursOf(none, true), neighboursOf(a, false), neighboursOf(unknown, false),
			allRoutes(7, false), allRoutes(7, true),
			neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:08", false),
			neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:08", false),
			neighbourMessage(a, "fd00::9", "02:00:00:00:00:01", false),
			neighbourMessage(a, "fd00::9", "02:00:00:00:00:01", false),
			neighboursOf(none, false), neighboursOf(none, true), allRoutes(7, false))
	}},
	{name: "neighbour: refusals", run: func(l *lab) {
		a := l.pods()
		zero := neighbourMessage(a, "10.0.0.9", "00:00:00:00:00:00", true)
		multicast := neighbourMessage(a, "10.0.0.8", "01:00:00:00:00:01", true)
		down := l.make("down", loopback(1, "02:00:00:00:01:01"))
		l.each(neighbourMessage(unknown, "10.0.0.9", "02:00:00:00:00:09", true),
			neighbourMessage(unknown, "10.0.0.9", "02:00:00:00:00:09", false),
			neighbourMessage(0, "10.0.0.9", "02:00:00:00:00:09", true), zero, multicast,
			neighbourMessage(down, "10.0.0.7", "02:00:00:00:00:07", true),
			neighbourMessage(down, "fd00::7", "02:00:00:00:00:07", true), neighboursOf(none, false),
			neighboursOf(none, true),
			&ip_neighbor.IPNeighborFlush{SwIfIndex: a}, neighboursOf(none, false), &ip_neighbor.IPNeighborFlush{
				SwIfIndex: unknown,
			})
	}},
	{name: "neighbour: neighbours and admin state", run: func(l *lab) {
		a := l.pods()
		l.must(neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:09", true))
		l.must(neighbourMessage(a, "fd00::9", "02:00:00:00:00:09", true))
		l.each(setUp(a, false), neighboursOf(none, false), neighboursOf(none, true), setUp(a, true),
			neighboursOf(none, false), neighboursOf(none, true))
	}},
	{name: "neighbour: without a FIB entry", run: func(l *lab) {
		a := l.pods()
		m := neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:09", true)
		m.Neighbor.Flags |= ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.each(m, neighboursOf(a, false), allRoutes(7, false))
	}},
}

// routeSources adds routes of existing and unknown sources.
func routeSources() []api.Message {
	var all []api.Message
	for _, source := range []uint8{1, 2, 4, 8, 15, 20, 77} {
		m := allRoutes(0, false)
		m.Src = source
		all = append(all, m)
	}
	return all
}
