package vpp

import (
	"context"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// allPorts means all unused UDP ports in set_punt.
const allPorts = 0xffff

type puntRedirectItem = kvscheduler.Item[wire.PuntRedirect, Index]

type puntRedirects struct{ c *Client }

func puntRedirectDescriptor(c *Client) kvscheduler.Descriptor[wire.PuntRedirect, Index] {
	return kvscheduler.Descriptor[wire.PuntRedirect, Index]{
		Name: wire.KindPuntRedirect, Lane: Lane,
		Equal:    equal[wire.PuntRedirect],
		Validate: validatePuntRedirect,
		Deps: func(_ string, v wire.PuntRedirect) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface), Mode: kvscheduler.Follow},
				{Label: "interface of the next hop", On: ref(wire.KindInterface, v.Via), Mode: kvscheduler.Follow},
				{
					Label: "VRF of the interface",
					On:    ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, v.Family)),
				},
				{Label: "next hop", On: ref(wire.KindNeighbour, wire.NeighbourName(v.Via, v.NextHop))},
			}
		},
		Recreate: func(have, want wire.PuntRedirect) bool {
			return have.Interface != want.Interface || have.Family != want.Family
		},
		After:   []string{wire.KindInterface},
		Backend: puntRedirects{c},
	}
}

func validatePuntRedirect(name string, v wire.PuntRedirect) error {
	switch {
	case v.Family != netaddr.IP4 && v.Family != netaddr.IP6:
		return fmt.Errorf("family %q is neither ip4 nor ip6", v.Family)
	case v.Interface == "" || v.Via == "" || v.Interface == v.Via:
		return fmt.Errorf("interface %q and interface %q of the next hop: both are needed, and they differ",
			v.Interface, v.Via)
	case !v.NextHop.IsValid() || netaddr.FamilyOf(v.NextHop) != v.Family:
		return fmt.Errorf("next hop %s is not of family %s", v.NextHop, v.Family)
	case name != wire.PuntRedirectName(v.Interface, v.Family):
		return fmt.Errorf("interface and family make the name %s", wire.PuntRedirectName(v.Interface, v.Family))
	}
	return nil
}

// Create punts datagrams to unused ports first. That cannot be dumped, so an existing redirect is the proof of it.
func (b puntRedirects) Create(ctx context.Context, batch []puntRedirectItem) {
	several(ctx, b.c, batch, func(it *puntRedirectItem) []*request {
		it.NewMeta = handle[Index](it, 0)
		return []*request{puntUDP(it.Want.Family, true), redirect(it.Want, it.NewMeta, []Index{handle[Index](it, 1)})}
	})
}

func (b puntRedirects) Update(ctx context.Context, batch []puntRedirectItem) { b.Create(ctx, batch) }

// Delete removes the redirects and then the punting of datagrams to unused ports.
func (b puntRedirects) Delete(ctx context.Context, batch []puntRedirectItem) {
	several(ctx, b.c, batch, func(it *puntRedirectItem) []*request {
		gone := redirect(it.Have, it.Meta, nil).fineIf(api.NO_SUCH_ENTRY, api.INVALID_SW_IF_INDEX)
		return []*request{gone, puntUDP(it.Have.Family, false)}
	})
}

func addressFamily(f netaddr.Family) ip_types.AddressFamily {
	if f == netaddr.IP4 {
		return ip_types.ADDRESS_IP4
	}
	return ip_types.ADDRESS_IP6
}

func puntUDP(f netaddr.Family, add bool) *request {
	return ask(fmt.Sprintf("set_punt: UDP of %s to all unused ports %v", f, add), &punt.SetPunt{
		IsAdd: add,
		Punt: punt.Punt{
			Type: punt.PUNT_API_TYPE_L4,
			Punt: punt.PuntUnionL4(punt.PuntL4{
				Af:       addressFamily(f),
				Protocol: ip_types.IP_API_PROTO_UDP,
				Port:     allPorts,
			}),
		},
	}, &punt.SetPuntReply{})
}

// redirect requests a redirect by the interface via. Without an interface it requests its deletion.
func redirect(v wire.PuntRedirect, rx Index, via []Index) *request {
	r := ip.PuntRedirectV2{RxSwIfIndex: rx.api(), Af: addressFamily(v.Family)}
	for _, i := range via {
		path := fib_types.FibPath{SwIfIndex: uint32(i), Weight: 1, Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
		if v.Family == netaddr.IP6 {
			path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		}
		path.Nh.Address = apiAddress(v.NextHop).Un
		r.Paths = append(r.Paths, path)
	}
	r.NPaths = uint32(len(r.Paths))
	return ask(fmt.Sprintf("add_del_ip_punt_redirect_v2: %s %s of %s", verb(len(via) > 0), v.Family, v.Interface),
		&ip.AddDelIPPuntRedirectV2{
			IsAdd: len(via) > 0, Punt: r,
		}, &ip.AddDelIPPuntRedirectV2Reply{})
}

func (b puntRedirects) Dump(
	ctx context.Context, _ kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.PuntRedirect, Index], error] {
	p, err := b.c.ports(ctx)
	if err != nil {
		return yieldAll[wire.PuntRedirect, Index](nil, err)
	}
	var requests []*request
	for _, f := range families {
		requests = append(requests,
			askAll(&ip.IPPuntRedirectV2Dump{SwIfIndex: noIndex.api(), Af: addressFamily(f)},
				&ip.IPPuntRedirectV2Details{}))
	}
	if err := b.c.exchangeAll(ctx, requests); err != nil {
		return yieldAll[wire.PuntRedirect, Index](nil, err)
	}
	var found []kvscheduler.Actual[wire.PuntRedirect, Index]
	for i, f := range families {
		for _, d := range listOf[*ip.IPPuntRedirectV2Details](requests[i]) {
			rx := Index(d.Punt.RxSwIfIndex)
			name, ours := p.byIndex[rx]
			if !ours {
				continue
			}
			v := wire.PuntRedirect{Interface: name, Family: f}
			for _, path := range withoutBackupDrop(d.Punt.Paths) {
				to := p.byIndex.path(path)
				v.Via = to.Interface
				v.NextHop = to.NextHop
			}
			found = append(found, kvscheduler.Actual[wire.PuntRedirect, Index]{
				Name: wire.PuntRedirectName(name, f),
				V:    v,
				Meta: rx,
			})
		}
	}
	return yieldAll(found, nil)
}
