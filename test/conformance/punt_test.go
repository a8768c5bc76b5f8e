package conformance

import (
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"
)

func familyNumber(six bool) ip_types.AddressFamily {
	if six {
		return ip_types.ADDRESS_IP6
	}
	return ip_types.ADDRESS_IP4
}

// redirected redirects packets from an interface to the dataplane itself to a next hop; without paths it removes the
// redirect.
func redirected(rx index, six bool, paths ...fib_types.FibPath) *ip.AddDelIPPuntRedirectV2 {
	return &ip.AddDelIPPuntRedirectV2{IsAdd: len(paths) > 0, Punt: ip.PuntRedirectV2{
		RxSwIfIndex: rx, Af: familyNumber(six), NPaths: uint32(len(paths)), Paths: paths,
	}}
}

func redirects(rx index, six bool) *ip.IPPuntRedirectV2Dump {
	return &ip.IPPuntRedirectV2Dump{SwIfIndex: rx, Af: familyNumber(six)}
}

// puntedUDP punts datagrams to ports on which the dataplane does not listen.
func puntedUDP(six, add bool) *punt.SetPunt {
	return &punt.SetPunt{IsAdd: add, Punt: punt.Punt{
		Type: punt.PUNT_API_TYPE_L4,
		Punt: punt.PuntUnionL4(punt.PuntL4{Af: familyNumber(six), Protocol: ip_types.IP_API_PROTO_UDP, Port: 0xffff}),
	}}
}

const allInterfaces = ^interface_types.InterfaceIndex(0)

var puntCases = []testCase{
	{name: "punt: redirects are made, replaced, dumped and deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		for _, c := range []struct {
			six         bool
			own, hop, m string
		}{{false, "10.0.0.1/24", "10.0.0.9", "02:00:00:00:00:09"}, {
			true, "fd00::1/64", "fd00::9", "02:00:00:00:00:0a",
		}} {
			l.must(addressMessage(b, c.own, true))
			l.must(neighbourMessage(b, c.hop, c.m, true))
			l.each(redirects(allInterfaces, c.six), redirected(a, c.six, via(b, c.hop, c.six)),
				redirected(a, c.six, via(b, c.hop, c.six)),
				redirects(allInterfaces, c.six), redirects(a, c.six), redirects(b, c.six),
				redirected(a, c.six), redirects(allInterfaces, c.six), redirected(a, c.six))
		}
	}},
	{name: "punt: datagrams to unused ports", run: func(l *lab) {
		for _, six := range []bool{false, true} {
			l.each(puntedUDP(six, true), puntedUDP(six, true), puntedUDP(six, false), puntedUDP(six, false))
		}
	}},
}
