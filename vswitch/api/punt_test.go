package api

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"
)

func (a *testClient) redirect(t testingT, m ip.AddDelIPPuntRedirectV2) error {
	t.Helper()
	_, err := invoke(t, a, ip.NewServiceClient(a.conn).AddDelIPPuntRedirectV2, &m)
	return err
}

func (a *testClient) redirects(
	t testingT, rx interface_types.InterfaceIndex, af ip_types.AddressFamily,
) []*ip.IPPuntRedirectV2Details {
	t.Helper()
	s, err := ip.NewServiceClient(a.conn).IPPuntRedirectV2Dump(a.context, &ip.IPPuntRedirectV2Dump{
		SwIfIndex: rx,
		Af:        af,
	})
	return collect[*ip.IPPuntRedirectV2Details](t, s, err)
}

func TestPuntRedirectCreateReplaceDumpDelete(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	to := func(rx interface_types.InterfaceIndex, last byte) ip.AddDelIPPuntRedirectV2 {
		path := fib_types.FibPath{SwIfIndex: 0, Weight: 1, Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
		path.Nh.Address = ip_types.AddressUnionIP4(ip_types.IP4Address{192, 0, 2, last})
		return ip.AddDelIPPuntRedirectV2{
			IsAdd: true,
			Punt:  ip.PuntRedirectV2{RxSwIfIndex: rx, NPaths: 1, Paths: []fib_types.FibPath{path}},
		}
	}
	// VPP does not look for what receives
	for _, m := range []ip.AddDelIPPuntRedirectV2{to(3, 1), to(3, 2), to(noInterface, 9)} {
		if err := a.redirect(t, m); err != nil {
			t.Fatal(err)
		}
	}
	if all := a.redirects(t, noInterface, ip_types.ADDRESS_IP4); len(all) != 2 || all[0].Punt.RxSwIfIndex != 3 ||
		all[1].Punt.RxSwIfIndex != noInterface {
		t.Fatalf("%+v", all)
	}
	if one := a.redirects(t, 3, ip_types.ADDRESS_IP4); len(one) != 1 || len(one[0].Punt.Paths) != 1 ||
		one[0].Punt.Paths[0].Nh != to(3, 2).Punt.Paths[0].Nh {
		t.Fatalf("%+v", one)
	}
	if other := a.redirects(t, noInterface, ip_types.ADDRESS_IP6); len(other) != 0 {
		t.Fatalf("%+v", other)
	}
	gone := to(3, 1)
	gone.IsAdd = false
	for range 2 {
		if err := a.redirect(t, gone); err != nil {
			t.Fatal(err)
		}
	}
	if all := a.redirects(t, noInterface, ip_types.ADDRESS_IP4); len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	unknown := to(3, 1)
	unknown.Punt.Paths[0].SwIfIndex = 4711
	checkRefusals(t, map[string]refusal{
		"a path by an unknown interface": {func() error { return a.redirect(t, unknown) }, api.INVALID_SW_IF_INDEX},
		"no family": {
			func() error { m := to(3, 1); m.Punt.Af = 9; return a.redirect(t, m) }, api.INVALID_ADDRESS_FAMILY,
		},
	})
}

func TestSetPuntAcceptsOnlyAllPortsOfUDPAndTCP(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	set := func(protocol ip_types.IPProto, port uint16) error {
		_, err := invoke(t, a, punt.NewServiceClient(a.conn).SetPunt, &punt.SetPunt{IsAdd: true, Punt: punt.Punt{
			Type: punt.PUNT_API_TYPE_L4, Punt: punt.PuntUnionL4(punt.PuntL4{Protocol: protocol, Port: port}),
		}})
		return err
	}
	for _, protocol := range []ip_types.IPProto{ip_types.IP_API_PROTO_UDP, ip_types.IP_API_PROTO_TCP} {
		if err := set(protocol, 0xffff); err != nil {
			t.Error(err)
		}
	}
	checkRefusals(t, map[string]refusal{
		"ICMP":              {func() error { return set(ip_types.IP_API_PROTO_ICMP, 0xffff) }, api.UNSPECIFIED},
		"a single TCP port": {func() error { return set(ip_types.IP_API_PROTO_TCP, 22) }, api.UNSPECIFIED},
	})
}
