package conformance

import (
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
)

var protocolCases = []testCase{
	{name: "protocol: an unknown message id is not answered", run: func(l *lab) {
		l.unanswered(0xfff0, make([]byte, 20))
	}},
	{name: "protocol: a truncated message is not answered", run: func(l *lab) {
		id := l.client.ids[messageKey(&interfaces.SwInterfaceSetFlags{})]
		l.unanswered(id, nil)
	}},
}

// unanswered sends bytes as a message, and records whether the next ping is answered.
func (l *lab) unanswered(id uint16, fields []byte) {
	l.Helper()
	data, err := l.client.encode(&memclnt.ControlPing{})
	if err != nil {
		l.Fatal(err)
	}
	asked := append(data, fields...)
	asked[0] = byte(id >> 8)
	asked[1] = byte(id)
	if err := l.client.write(asked); err != nil {
		l.Fatal(err)
	}
	_, err = l.client.ask(&memclnt.ControlPing{})
	l.note("the next ping is answered: %t", err == nil)
}

func tag(i index, text string, add bool) *interfaces.SwInterfaceTagAddDel {
	return &interfaces.SwInterfaceTagAddDel{SwIfIndex: i, Tag: text, IsAdd: add}
}

func mtu(i index, values ...uint32) *interfaces.SwInterfaceSetMtu {
	return &interfaces.SwInterfaceSetMtu{SwIfIndex: i, Mtu: append(values, make([]uint32, 4-len(values))...)}
}

func setMAC(i index, m string) *interfaces.SwInterfaceSetMacAddress {
	return &interfaces.SwInterfaceSetMacAddress{SwIfIndex: i, MacAddress: mac(m)}
}

func unnumbered(i, donor index, add bool) *interfaces.SwInterfaceSetUnnumbered {
	return &interfaces.SwInterfaceSetUnnumbered{SwIfIndex: donor, UnnumberedSwIfIndex: i, IsAdd: add}
}

// linkLocalKills: VPP calls ip6_address_is_equal with a link-local address that does not exist.
var linkLocalKills = map[string]string{
	"25.10": "SIGSEGV in ip6_add_del_interface_address (ip6_forward.c:338): ip6_get_link_local_address returns NULL",
	"26.06": "SIGSEGV as in 25.10",
}

var interfaceCases = []testCase{
	{name: "interface: a fresh dataplane has local0", run: func(l *lab) {
		l.each(dumpOf(none), allRoutes(0, false), allRoutes(0, true), &ip.IPTableDump{}, addressesOf(0, false))
	}},
	{name: "interface: loopbacks are created, dumped and deleted", run: func(l *lab) {
		a := l.make("a", loopback(5, "02:00:00:00:00:01"))
		b := l.make("b", &interfaces.CreateLoopbackInstance{})
		c := l.make("c", &interfaces.CreateLoopback{})
		l.each(dumpOf(none), setUp(a, true), dumpOf(a), &interfaces.DeleteLoopback{SwIfIndex: b}, dumpOf(none),
			&interfaces.DeleteLoopback{SwIfIndex: b}, &interfaces.DeleteLoopback{SwIfIndex: unknown},
			&interfaces.DeleteLoopback{},
			&interfaces.DeleteLoopback{SwIfIndex: a}, &interfaces.DeleteLoopback{SwIfIndex: c}, dumpOf(none))
	}},
	{name: "interface: a loopback instance in use is refused", run: func(l *lab) {
		l.make("a", loopback(5, "02:00:00:00:00:01"))
		l.each(loopback(5, "02:00:00:00:00:02"), loopback(16384, "02:00:00:00:00:03"),
			loopback(16383, "02:00:00:00:00:04"))
	}},
	{name: "interface: the lowest free loopback instance is chosen", run: func(l *lab) {
		l.make("a", loopback(1, "02:00:00:00:00:01"))
		l.make("b", &interfaces.CreateLoopback{})
		l.make("c", &interfaces.CreateLoopback{})
		l.ask(dumpOf(none))
	}},
	{name: "interface: the index of a deleted interface", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		b := l.make("b", loopback(1, "02:00:00:00:00:02"))
		l.must(&interfaces.DeleteLoopback{SwIfIndex: a})
		c := l.make("c", loopback(2, "02:00:00:00:00:03"))
		d := l.make("d", loopback(3, "02:00:00:00:00:04"))
		l.must(&interfaces.DeleteLoopback{SwIfIndex: b})
		l.must(&interfaces.DeleteLoopback{SwIfIndex: c})
		e := l.make("e", loopback(4, "02:00:00:00:00:05"))
		l.note("indexes %d %d %d %d %d", a, b, c, d, e)
	}},
	{name: "interface: tags", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.each(tag(a, "first", true), dumpOf(a), tag(a, "second", true), dumpOf(a),
			tag(a, strings.Repeat("x", 64), true), dumpOf(a),
			tag(a, "", true), dumpOf(a), tag(a, "", false), dumpOf(a), tag(a, "", false), tag(unknown, "x", true),
			tag(unknown, "", false),
			tag(0, "local", true), dumpOf(0), tag(a, "goes with it", true), &interfaces.DeleteLoopback{SwIfIndex: a})
		b := l.make("b", loopback(0, "02:00:00:00:00:01"))
		l.ask(dumpOf(b))
	}},
	{name: "interface: the dump's filters", run: func(l *lab) {
		l.make("a", loopback(0, "02:00:00:00:00:01"))
		b := l.make("b", loopback(11, "02:00:00:00:00:02"))
		named := func(i index, s string) *interfaces.SwInterfaceDump {
			return &interfaces.SwInterfaceDump{SwIfIndex: i, NameFilterValid: true, NameFilter: s}
		}
		l.each(&interfaces.SwInterfaceDump{}, dumpOf(b), dumpOf(unknown), named(none, "LOOP1"), named(b, "loc"),
			named(none, ""), named(none, "zz"))
	}},
	{name: "interface: segmentation in software", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		segment := func(i index, on bool) *gso.FeatureGsoEnableDisable {
			return &gso.FeatureGsoEnableDisable{SwIfIndex: i, EnableDisable: on}
		}
		l.each(segment(a, true), segment(a, true), segment(a, false), segment(a, false), segment(unknown, true))
	}},
	{name: "interface: flags", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		odd := setUp(a, true)
		odd.Flags = 0x7e
		l.each(setUp(a, true), setUp(a, true), dumpOf(a), odd, dumpOf(a), setUp(a, false), dumpOf(a),
			setUp(unknown, true),
			setUp(0, true), dumpOf(0), setUp(0, false))
	}},
	{name: "interface: MTUs", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.each(mtu(a, 1400), dumpOf(a), mtu(a, 9000, 1500), dumpOf(a), mtu(a, 0), dumpOf(a), mtu(a, 65535), dumpOf(a),
			mtu(a, 100000), dumpOf(a),
			mtu(a, 1), dumpOf(a), mtu(unknown, 1400), mtu(0, 1400), dumpOf(0),
			&interfaces.HwInterfaceSetMtu{SwIfIndex: a, Mtu: 1500}, &interfaces.HwInterfaceSetMtu{
				SwIfIndex: 0,
				Mtu:       1500,
			},
			&interfaces.HwInterfaceSetMtu{SwIfIndex: unknown, Mtu: 1500})
	}},
	{name: "interface: MACs", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.each(setMAC(a, "02:00:00:00:00:09"), dumpOf(a), setMAC(a, "01:00:00:00:00:01"), dumpOf(a),
			setMAC(a, "00:00:00:00:00:00"), dumpOf(a),
			setMAC(0, "02:00:00:00:00:09"), setMAC(unknown, "02:00:00:00:00:09"), loopback(1, "01:00:00:00:00:01"),
			loopback(2, "00:00:00:00:00:00"))
	}},
	{name: "interface: events", run: func(l *lab) {
		l.watch()
		l.each(&interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 43})
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.events(1)
		for _, m := range []api.Message{
			setUp(a, true), setUp(a, true), setUp(a, false), &interfaces.DeleteLoopback{SwIfIndex: a},
		} {
			l.ask(m)
			l.settle()
		}
		l.each(&interfaces.WantInterfaceEvents{}, &interfaces.WantInterfaceEvents{})
	}},
	{name: "interface: addresses of IPv4", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		l.addresses(a, b, "10.0.0.1/24", "10.0.0.1/24", "10.0.0.2/24", "10.0.0.9/32", "10.0.0.1/25", "10.0.0.1/16",
			"10.5.0.1/32", "10.9.0.1/0", "0.0.0.0/24",
			"224.0.0.1/24", "127.0.0.1/8", "255.255.255.255/32", "10.6.0.1/31", "10.7.0.0/24")
	}},
	{name: "interface: addresses of IPv6", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		l.addresses(a, b, "fd00::1/64", "fd00::1/64", "fd00::2/64", "fd00::9/128", "fd01::1/128", "fd00::1/48",
			"fd02::1/0", "::/64", "ff02::1/64", "::1/128",
			"fe80::1/64", "fe80::5/128", "fe80::6/128", "fe80::5/128")
	}},
	{name: "interface: addresses are deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		for _, p := range []string{"10.0.0.1/24", "fd00::1/64"} {
			l.must(addressMessage(a, p, true))
		}
		for _, p := range []string{"10.0.0.1/25", "10.0.0.2/24", "fd00::1/128", "fd00::2/64"} {
			l.ask(addressMessage(a, p, false))
		}
		l.each(addressMessage(b, "10.0.0.1/24", false), addressMessage(a, "10.0.0.1/24", false),
			addressMessage(a, "10.0.0.1/24", false),
			addressMessage(a, "fd00::1/64", false), addressMessage(a, "fd00::1/64", false),
			addressMessage(unknown, "10.0.0.1/24", false),
			addressesOf(a, false), addressesOf(a, true), allRoutes(0, false), allRoutes(0, true))
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.must(addressMessage(a, "10.0.0.2/24", true))
		all := addressMessage(a, "10.0.0.1/24", false)
		all.DelAll = true
		l.each(all, addressesOf(a, false), addressesOf(unknown, false), addressesOf(none, false))
	}},
	{name: "interface: link-local addresses are deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(addressMessage(a, "fd00::1/64", true))
		l.must(addressMessage(a, "fe80::5/128", true))
		l.each(addressMessage(a, "fe80::5/128", false), addressMessage(a, "fe80::6/128", false),
			&ip.SwInterfaceIP6GetLinkLocalAddress{SwIfIndex: a})
	}},
	{name: "interface: a link-local address is deleted where IPv6 is off", kills: linkLocalKills, run: func(l *lab) {
		a := l.loop(0, "a")
		l.ask(addressMessage(a, "fe80::5/128", false))
	}},
	{name: "interface: the same prefix on two interfaces", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		l.each(addressMessage(a, "10.0.0.1/24", true), addressMessage(b, "10.0.0.2/24", true),
			addressMessage(b, "10.0.0.2/32", true),
			addressMessage(a, "fd00::1/64", true), addressMessage(b, "fd00::2/64", true),
			addressMessage(b, "fd00::2/128", true),
			tableMessage(7, false, true), setTable(b, 7, false), addressMessage(b, "10.0.0.2/24", true),
			addressesOf(b, false))
	}},
	{name: "interface: routes of addresses follow admin state", run: func(l *lab) {
		a := l.make("a", loopback(0, "02:00:00:00:00:01"))
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.must(addressMessage(a, "fd00::1/64", true))
		l.each(allRoutes(0, false), allRoutes(0, true), setUp(a, true), allRoutes(0, false), allRoutes(0, true),
			setUp(a, false),
			allRoutes(0, false), allRoutes(0, true))
	}},
	{name: "interface: link-local addresses", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		read := func(i index) api.Message { return &ip.SwInterfaceIP6GetLinkLocalAddress{SwIfIndex: i} }
		set := func(i index, s string) api.Message {
			return &ip.SwInterfaceIP6SetLinkLocalAddress{SwIfIndex: i, IP: ip6(s)}
		}
		l.each(read(a), set(a, "fe80::77"), read(a), addressesOf(a, true), allRoutes(0, true), set(a, "fe80::78"),
			read(a), set(a, "fd00::1"), read(a),
			set(a, "::"), read(a), set(unknown, "fe80::1"), read(unknown), read(0), set(0, "fe80::1"),
			&ip.SwInterfaceIP6EnableDisable{SwIfIndex: b, Enable: true}, read(b), &ip.SwInterfaceIP6EnableDisable{
				SwIfIndex: b,
				Enable:    true,
			},
			&ip.SwInterfaceIP6EnableDisable{SwIfIndex: b}, read(b), &ip.SwInterfaceIP6EnableDisable{SwIfIndex: b},
			&ip.SwInterfaceIP6EnableDisable{SwIfIndex: unknown, Enable: true})
	}},
	{name: "interface: tables of an interface", run: func(l *lab) {
		a := l.loop(0, "a")
		read := func(i index, six bool) api.Message {
			return &interfaces.SwInterfaceGetTable{SwIfIndex: i, IsIPv6: six}
		}
		l.each(read(a, false), setTable(a, 7, false), tableMessage(7, false, true), tableMessage(7, true, true),
			setTable(a, 7, false), setTable(a, 7, false), read(a, false),
			read(a, true), addressMessage(a, "10.0.0.1/24", true), setTable(a, 0, false), setTable(a, 7, false),
			setTable(a, 7, true), addressMessage(a, "fd00::1/64", true),
			setTable(a, 0, true), addressMessage(a, "10.0.0.1/24", false), setTable(a, 0, false), read(a, false),
			read(unknown, false),
			setTable(unknown, 7, false), setTable(0, 7, false), read(0, false))
	}},
	{name: "interface: a table in use is deleted", run: func(l *lab) {
		a := l.pods()
		l.must(addressMessage(a, "10.0.0.1/24", true))
		l.must(routeMessage(7, "10.1.0.0/16", via(a, "10.0.0.9", false)))
		l.each(tableMessage(7, false, false), &ip.IPTableDump{}, allRoutes(7, false), routesOf(7, false),
			tableMessage(7, false, false),
			&interfaces.SwInterfaceGetTable{SwIfIndex: a}, tableMessage(7, false, true), routesOf(7, false),
			&interfaces.DeleteLoopback{SwIfIndex: a}, &ip.IPTableDump{}, tableMessage(7, false, false),
			tableMessage(7, true, false), &ip.IPTableDump{})
	}},
	{name: "interface: unnumbered", run: func(l *lab) {
		donor := l.loop(0, "donor")
		a := l.loop(1, "a")
		b := l.loop(2, "b")
		dump := &ip.IPUnnumberedDump{SwIfIndex: none}
		l.each(unnumbered(a, donor, true), dump, addressMessage(donor, "10.0.0.1/32", true),
			addressMessage(donor, "fd00::1/128", true),
			unnumbered(a, donor, true), dump, addressesOf(a, false), addressMessage(a, "10.0.5.1/24", true),
			allRoutes(0, false), unnumbered(a, donor, true),
			unnumbered(a, b, true), unnumbered(b, a, true), dump, unnumbered(donor, donor, true),
			unnumbered(a, unknown, true), unnumbered(unknown, donor, true), unnumbered(unknown, unknown, false),
			&ip.IPUnnumberedDump{SwIfIndex: a}, &ip.IPUnnumberedDump{SwIfIndex: donor}, &ip.IPUnnumberedDump{
				SwIfIndex: unknown,
			})
		l.each(unnumbered(a, donor, false), dump, unnumbered(a, donor, false), unnumbered(b, donor, false), dump)
	}},
	{name: "interface: the donor of an unnumbered interface is deleted", run: func(l *lab) {
		donor := l.loop(0, "donor")
		a := l.loop(1, "a")
		l.must(addressMessage(donor, "10.0.0.1/32", true))
		l.must(unnumbered(a, donor, true))
		l.each(addressMessage(donor, "10.0.0.1/32", false), &ip.IPUnnumberedDump{SwIfIndex: none},
			addressMessage(donor, "10.0.0.2/32", true),
			&interfaces.DeleteLoopback{SwIfIndex: a}, &ip.IPUnnumberedDump{SwIfIndex: none})
	}},
	{name: "interface: an unnumbered interface in a table", run: func(l *lab) {
		donor := l.pods()
		a := l.loop(1, "a")
		l.must(addressMessage(donor, "10.0.0.1/32", true))
		l.must(setTable(a, 7, false))
		l.must(setTable(a, 7, true))
		l.each(unnumbered(a, donor, true), allRoutes(7, false), setTable(a, 0, false),
			routeMessage(7, "10.1.0.1/32", via(a, "", false)), routesOf(7, false))
	}},
	{name: "interface: all settings are deleted with an interface", run: func(l *lab) {
		a := l.loop(0, "a")
		for _, p := range []string{"10.0.0.1/24", "fd00::1/64"} {
			l.must(addressMessage(a, p, true))
		}
		l.must(routeMessage(0, "10.1.0.0/16", via(a, "10.0.0.9", false)))
		l.must(neighbourMessage(a, "10.0.0.9", "02:00:00:00:00:09", true))
		l.must(neighbourMessage(a, "fd00::9", "02:00:00:00:00:09", true))
		l.each(allRoutes(0, false), allRoutes(0, true), &interfaces.DeleteLoopback{SwIfIndex: a}, allRoutes(0, false),
			allRoutes(0, true), neighboursOf(none, false),
			neighboursOf(none, true))
		b := l.loop(1, "b")
		l.each(allRoutes(0, false), addressesOf(b, false), deleteRoute(0, "10.1.0.0/16"), deleteRoute(0, "10.1.0.0/16"),
			allRoutes(0, false))
	}},
}

// addresses adds each prefix to a, and records the routes of b's table.
func (l *lab) addresses(a, b index, prefixes ...string) {
	l.Helper()
	for _, p := range prefixes {
		l.ask(addressMessage(a, p, true))
	}
	six := strings.Contains(prefixes[0], ":")
	l.each(addressMessage(unknown, prefixes[0], true), addressMessage(0, prefixes[0], true),
		addressMessage(b, prefixes[0], true),
		addressesOf(a, six), addressesOf(b, six), allRoutes(0, six))
}

// settle changes the state of the marker interface, and records the events up to the marker's. VPP sends events some
// time after the reply, in order, and one for several changes of an interface.
func (l *lab) settle() {
	l.Helper()
	l.markerUp = !l.markerUp
	if _, err := l.client.ask(setUp(l.marker, l.markerUp)); err != nil {
		l.Fatal(err)
	}
	for settled := false; !settled; {
		events, err := l.client.awaitEvents(1)
		if err != nil {
			l.Fatalf("events: %v\n%s", err, l.transcript())
		}
		for _, e := range events {
			if e.SwIfIndex == l.marker {
				settled = true
				continue
			}
			l.note("event %s", l.printer.fields(e))
		}
	}
}
