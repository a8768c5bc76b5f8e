package vpp

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Proxy identifies the range and the interface of applied proxy ARP. Several objects may share either. The remainder of
// an object has only one of them; the other one is an invalid range or noIndex.
type Proxy struct {
	Range     ProxyRange
	Interface Index
}

// ProxyRange is a range of addresses of a table.
type ProxyRange struct {
	Table       uint32
	First, Last netip.Addr
}

type proxyItem = kvscheduler.Item[wire.ProxyARP, Proxy]

type proxyARPs struct {
	recreated[wire.ProxyARP, Proxy]
	c      *Client
	claims *claims
}

func proxyARPDescriptor(c *Client) kvscheduler.Descriptor[wire.ProxyARP, Proxy] {
	return kvscheduler.Descriptor[wire.ProxyARP, Proxy]{
		Name: wire.KindProxyARP, Lane: Lane,
		Equal:    equal[wire.ProxyARP],
		Validate: validateProxyARP,
		Deps: func(_ string, v wire.ProxyARP) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				{Label: "VRF", On: ref(wire.KindVRF, v.VRF)},
				{
					Label: "VRF of the interface",
					On:    ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, netaddr.IP4)),
				},
			}
		},
		Recreate: always[wire.ProxyARP],
		After:    []string{wire.KindInterface, wire.KindVRF},
		Backend:  proxyARPs{c: c, claims: &claims{of: map[string]claim{}}},
	}
}

func validateProxyARP(name string, v wire.ProxyARP) error {
	switch {
	case !v.First.Is4() || !v.Last.Is4() || v.Last.Less(v.First):
		return fmt.Errorf("from %s to %s is no range of IPv4", v.First, v.Last)
	case name != wire.ProxyARPName(v.Interface, v.First):
		return fmt.Errorf("interface and address make the name %s", wire.ProxyARPName(v.Interface, v.First))
	}
	return nil
}

// Create adds the ranges to their tables and enables the interfaces. An enabled interface answers for all ranges of its
// table.
func (b proxyARPs) Create(ctx context.Context, batch []proxyItem) {
	several(ctx, b.c, batch, func(it *proxyItem) []*request {
		it.NewMeta = Proxy{ProxyRange{handle[Table](it, 1).ID, it.Want.First, it.Want.Last}, handle[Index](it, 0)}
		b.claims.set(it.Name, it.NewMeta)
		return []*request{addDelProxy(it.NewMeta.Range, true), enableProxy(it.NewMeta.Interface, true)}
	})
}

// Delete removes ranges and disables interfaces that no other object needs.
func (b proxyARPs) Delete(ctx context.Context, batch []proxyItem) {
	for i := range batch {
		b.claims.drop(batch[i].Name)
	}
	several(ctx, b.c, batch, func(it *proxyItem) (requests []*request) {
		m := it.Meta
		needsRange, needsInterface := b.claims.need(m)
		if m.Range.First.IsValid() && !needsRange {
			requests = append(requests, addDelProxy(m.Range, false).fineIf(api.NO_SUCH_ENTRY, api.NO_SUCH_FIB))
		}
		if m.Interface != noIndex && !needsInterface {
			requests = append(requests,
				enableProxy(m.Interface, false).fineIf(api.NO_SUCH_ENTRY, api.INVALID_SW_IF_INDEX))
		}
		return requests
	})
}

func addDelProxy(r ProxyRange, add bool) *request {
	return ask(fmt.Sprintf("proxy_arp_add_del: %s %s to %s in table %d", verb(add), r.First, r.Last, r.Table),
		&arp.ProxyArpAddDel{
			IsAdd: add,
			Proxy: arp.ProxyArp{
				TableID: r.Table,
				Low:     ip_types.IP4Address(r.First.As4()),
				Hi:      ip_types.IP4Address(r.Last.As4()),
			},
		}, &arp.ProxyArpAddDelReply{})
}

func enableProxy(i Index, enable bool) *request {
	return ask(fmt.Sprintf("proxy_arp_intfc_enable_disable: interface %d %v", i, enable),
		&arp.ProxyArpIntfcEnableDisable{
			SwIfIndex: i.api(), Enable: enable,
		}, &arp.ProxyArpIntfcEnableDisableReply{})
}

// Dump lists known objects with both parts in the dataplane, and remainders of other objects.
func (b proxyARPs) Dump(
	ctx context.Context, view kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.ProxyARP, Proxy], error] {
	return yieldAll(b.dump(ctx, view))
}

func (b proxyARPs) dump(
	ctx context.Context, view kvscheduler.View,
) ([]kvscheduler.Actual[wire.ProxyARP, Proxy], error) {
	p, tables, err := both(ctx, b.c.ports, vrfs{c: b.c}.tables)
	if err != nil {
		return nil, err
	}
	there, err := b.parts(ctx)
	if err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.ProxyARP, Proxy]
	for name, v := range b.known(view) {
		port := p.byName[v.Interface]
		table, ok := tables.byName[v.VRF]
		if port == nil || !ok {
			continue
		}
		m := Proxy{ProxyRange{table.ID, v.First, v.Last}, Index(port.SwIfIndex)}
		if there.has(m) {
			found = append(found, kvscheduler.Actual[wire.ProxyARP, Proxy]{Name: name, V: v, Meta: m})
		}
		if _, desired := view.Desired(ref(wire.KindProxyARP, name)); desired || there.has(m) {
			b.claims.set(name, m)
		} else {
			b.claims.drop(name)
		}
	}
	return append(found, b.unclaimed(p, tables.names, there)...), nil
}

// unclaimed lists ranges of our tables and our interfaces that no known object needs.
func (b proxyARPs) unclaimed(
	p *ports, vrfs map[Table]string, there proxyParts,
) []kvscheduler.Actual[wire.ProxyARP, Proxy] {
	var found []kvscheduler.Actual[wire.ProxyARP, Proxy]
	for r := range there.ranges {
		vrf, ours := vrfs[Table{r.Table, netaddr.IP4}]
		if needed, _ := b.claims.need(Proxy{r, noIndex}); ours && !needed {
			found = append(found, kvscheduler.Actual[wire.ProxyARP, Proxy]{
				Name: fmt.Sprintf("#%s/%s-%s", vrf, r.First, r.Last),
				V:    wire.ProxyARP{VRF: vrf, First: r.First, Last: r.Last},
				Meta: Proxy{r, noIndex},
			})
		}
	}
	for i := range there.interfaces {
		name, ours := p.byIndex[i]
		if _, needed := b.claims.need(Proxy{Interface: i}); ours && !needed {
			found = append(found, kvscheduler.Actual[wire.ProxyARP, Proxy]{
				Name: name + "/#",
				V:    wire.ProxyARP{Interface: name},
				Meta: Proxy{Interface: i},
			})
		}
	}
	return found
}

// known returns the objects by name with their desired values, or else the applied ones. It drops claims of other
// objects.
func (b proxyARPs) known(view kvscheduler.View) map[string]wire.ProxyARP {
	all := map[string]wire.ProxyARP{}
	for name := range view.All(wire.KindProxyARP) {
		v, ok := view.Desired(ref(wire.KindProxyARP, name))
		if !ok {
			v, _, ok = view.Applied(ref(wire.KindProxyARP, name))
		}
		if v, is := v.(wire.ProxyARP); ok && is && v.First.IsValid() && v.Interface != "" {
			all[name] = v
		}
	}
	b.claims.keep(all)
	return all
}

type proxyParts struct {
	ranges     map[ProxyRange]bool
	interfaces map[Index]bool
}

func (p proxyParts) has(m Proxy) bool { return p.ranges[m.Range] && p.interfaces[m.Interface] }

func (b proxyARPs) parts(ctx context.Context) (proxyParts, error) {
	p := proxyParts{ranges: map[ProxyRange]bool{}, interfaces: map[Index]bool{}}
	ranges := askAll(&arp.ProxyArpDump{}, &arp.ProxyArpDetails{})
	interfaces := askAll(&arp.ProxyArpIntfcDump{}, &arp.ProxyArpIntfcDetails{})
	if err := b.c.exchangeAll(ctx, []*request{ranges, interfaces}); err != nil {
		return p, err
	}
	for _, d := range listOf[*arp.ProxyArpDetails](ranges) {
		p.ranges[ProxyRange{d.Proxy.TableID, netip.AddrFrom4(d.Proxy.Low), netip.AddrFrom4(d.Proxy.Hi)}] = true
	}
	for _, d := range listOf[*arp.ProxyArpIntfcDetails](interfaces) {
		p.interfaces[Index(d.SwIfIndex)] = true
	}
	return p, nil
}

// claims record which objects need which parts of the dataplane's proxy ARP, which the dataplane does not know: the
// last object deletes the part. A stale claim keeps a part until the next dump.
type claims struct {
	mu sync.Mutex
	of map[string]claim // by object
}

type claim struct {
	Proxy
	doubted bool // the object was unknown in the last dump
}

func (c *claims) set(name string, m Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[name] = claim{Proxy: m}
}

func (c *claims) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, name)
}

// keep drops the claims of objects that are unknown in two dumps in a row: one dump may run beside the transaction that
// creates an object.
func (c *claims) keep(known map[string]wire.ProxyARP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.of {
		switch _, ok := known[name]; {
		case ok:
		case old.doubted:
			delete(c.of, name)
		default:
			c.of[name] = claim{old.Proxy, true}
		}
	}
}

// need reports whether any object needs the range, and whether any object needs the interface.
func (c *claims) need(m Proxy) (needsRange, needsInterface bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.of {
		needsRange = needsRange || other.Range == m.Range
		needsInterface = needsInterface || other.Interface == m.Interface
	}
	return needsRange, needsInterface
}
