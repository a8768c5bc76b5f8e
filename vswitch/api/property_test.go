package api

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// machine applies the same calls to a server and to the reference.
type machine struct {
	*testClient
	model  *model.Model
	engine *modeltest.Engine
	ref    *reference
}

func TestDumpsMatchReferenceAfterRandomCallsAndAreEmptyAfterDelete(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{testClient: a, model: r.model, engine: r.engine, ref: newReference()}
		defer m.wipe(t)
		t.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"loopback":  m.addLoopback,
			"tap":       m.addTap,
			"delete":    m.deleteInterface,
			"flags":     m.flags,
			"tag":       m.tag,
			"table":     m.changeTable,
			"bind":      m.bind,
			"address":   m.changeAddress,
			"route":     m.changeRoute,
			"neighbour": m.changeNeighbour,
		})
	})
}

// index draws an interface index, sometimes an unknown one.
func (m *machine) index(t *rapid.T) interface_types.InterfaceIndex {
	list := []interface_types.InterfaceIndex{65000}
	for i := range m.ref.interfaces {
		list = append(list, i)
	}
	slices.Sort(list)
	return rapid.SampledFrom(list).Draw(t, "interface")
}

// agree fails the test unless the call succeeds as the reference expects. It returns that.
func agree(t *rapid.T, what string, err error, want bool) bool {
	t.Helper()
	if (err == nil) != want {
		t.Fatalf("%s: %v, but it should succeed: %v", what, err, want)
	}
	return want
}

func (m *machine) addLoopback(t *rapid.T) {
	instance := rapid.Uint32Range(0, 3).Draw(t, "instance")
	name := fmt.Sprintf("loop%d", instance)
	reply, err := invoke(t, m.testClient, m.ifs.CreateLoopbackInstance, &interfaces.CreateLoopbackInstance{
		IsSpecified:  true,
		UserInstance: instance,
	})
	if agree(t, name, err, !m.named(name)) {
		m.added(t, reply.SwIfIndex, &refInterface{name: name})
	}
}

func (m *machine) addTap(t *rapid.T) {
	id := rapid.Uint32Range(0, 3).Draw(t, "id")
	name := fmt.Sprintf("tap%d", id)
	reply, err := invoke(t, m.testClient, m.taps.TapCreateV3, &tapv2.TapCreateV3{
		ID:           id,
		UseRandomMac: true,
		Tag:          "a tap",
	})
	if agree(t, name, err, !m.named(name)) {
		m.added(t, reply.SwIfIndex, &refInterface{name: name, tag: "a tap"})
	}
}

func (m *machine) named(name string) bool {
	for _, i := range m.ref.interfaces {
		if i.name == name {
			return true
		}
	}
	return false
}

func (m *machine) added(t *rapid.T, index interface_types.InterfaceIndex, i *refInterface) {
	if m.ref.interfaces[index] != nil {
		t.Fatalf("index %d is in use", index)
	}
	i.neighbours = map[netip.Addr]bool{}
	m.ref.interfaces[index] = i
}

func (m *machine) deleteInterface(t *rapid.T) {
	index := m.index(t)
	i := m.ref.interfaces[index]
	_, errLoop := invoke(t, m.testClient, m.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: index})
	_, errTap := invoke(t, m.testClient, m.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: index})
	agree(t, "delete loopback", errLoop, i != nil && i.name[0] == 'l' && index != 0)
	agree(t, "delete tap", errTap, i != nil && i.name[0] == 't')
	if i != nil && index != 0 {
		delete(m.ref.interfaces, index)
		m.ref.sweep()
	}
}

func (m *machine) flags(t *rapid.T) {
	index := m.index(t)
	up := rapid.Bool().Draw(t, "up")
	_, err := invoke(t, m.testClient, m.ifs.SwInterfaceSetFlags, &interfaces.SwInterfaceSetFlags{
		SwIfIndex: index,
		Flags:     statusFlags(up, false),
	})
	if i := m.ref.interfaces[index]; agree(t, "set flags", err, i != nil) {
		i.up = up
	}
}

func (m *machine) tag(t *rapid.T) {
	index := m.index(t)
	tag := rapid.StringMatching(`[a-z]{0,70}`).Draw(t, "tag")
	_, err := invoke(t, m.testClient, m.ifs.SwInterfaceTagAddDel, &interfaces.SwInterfaceTagAddDel{
		IsAdd:     true,
		SwIfIndex: index,
		Tag:       tag,
	})
	if i := m.ref.interfaces[index]; agree(t, "tag", err, i != nil && tag != "") {
		i.tag = tag[:min(63, len(tag))]
	}
}

func (m *machine) changeTable(t *rapid.T) {
	id := rapid.Uint32Range(0, 2).Draw(t, "table")
	add := rapid.Bool().Draw(t, "add")
	_, err := invoke(t, m.testClient, m.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{
		IsAdd: add,
		Table: ip.IPTable{TableID: id},
	})
	agree(t, "table", err, true)
	m.ref.tables[id] = add || id == 0
	m.ref.sweep()
}

func (m *machine) bind(t *rapid.T) {
	index := m.index(t)
	id := rapid.Uint32Range(0, 2).Draw(t, "table")
	_, err := invoke(t, m.testClient, m.ifs.SwInterfaceSetTable, &interfaces.SwInterfaceSetTable{
		SwIfIndex: index,
		VrfID:     id,
	})
	i := m.ref.interfaces[index]
	free := i != nil && !slices.ContainsFunc(i.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if agree(t, "bind", err, free && m.ref.exists(id)) {
		i.table = id
		m.ref.sweep()
	}
}

func (m *machine) changeAddress(t *rapid.T) {
	index := m.index(t)
	add := rapid.Bool().Draw(t, "add")
	s := rapid.SampledFrom([]string{
		"10.0.0.1/24", "10.0.0.2/24", "10.0.1.1/24", "10.0.0.7/16", "10.0.2.0/31", "10.0.2.9/32",
		"fd00::1/64", "fd00::2/64", "fd00:1::1/128",
	}).Draw(t, "address")
	p := netip.MustParsePrefix(s)
	i := m.ref.interfaces[index]
	err := m.address(t, index, s, add)
	if add {
		if agree(t, "add address", err, i != nil && index != 0 && !m.conflicts(i, p)) {
			i.addresses = append(i.addresses, p)
		}
		return
	}
	if agree(t, "delete address", err, i != nil && slices.Contains(i.addresses, p)) {
		i.addresses = slices.DeleteFunc(i.addresses, func(q netip.Prefix) bool { return p == q })
	}
}

// conflicts assumes one table for IPv6: the test binds only IPv4 tables.
func (m *machine) conflicts(i *refInterface, p netip.Prefix) bool {
	if p.Addr().Is4() {
		return m.ref.conflicts(i, p)
	}
	for _, other := range m.ref.interfaces {
		for _, q := range other.addresses {
			if p.Overlaps(q) && (other != i || p == q || p.Bits() != q.Bits()) {
				return true
			}
		}
	}
	return false
}

func (m *machine) changeRoute(t *rapid.T) {
	k := refPrefix{rapid.Uint32Range(0, 2).Draw(t, "table"),
		netip.MustParsePrefix(rapid.SampledFrom([]string{
			"0.0.0.0/0", "10.0.0.0/24", "10.0.3.0/24", "10.0.0.9/32",
		}).Draw(t, "prefix"))}
	path := refPath{
		uint32(m.index(t)), rapid.SampledFrom([]string{"0.0.0.0", "10.0.0.9", "10.0.0.10"}).Draw(t, "next hop"),
	}
	add := rapid.Bool().Draw(t, "add")
	multipath := rapid.Bool().Draw(t, "multipath")
	nh, _ := ip_types.ParseAddress(path.nextHop)
	_, err := invoke(t, m.testClient, m.ips.IPRouteAddDelV2, &ip.IPRouteAddDelV2{
		IsAdd:       add,
		IsMultipath: multipath,
		Route: ip.IPRouteV2{
			TableID: k.table,
			Prefix:  toPrefix(k.prefix),
			Paths:   []fib_types.FibPath{{SwIfIndex: path.index, Nh: fib_types.FibPathNh{Address: nh.Un}}}},
	})
	if !agree(t, "route", err,
		m.ref.exists(k.table) && m.ref.interfaces[interface_types.InterfaceIndex(path.index)] != nil) {
		return
	}
	if k.prefix.IsSingleIP() && path.nextHop == "0.0.0.0" {
		path.nextHop = k.prefix.Addr().String() // VPP: fib_table_route_path_fixup
	}
	old := m.ref.routes[k]
	others := slices.DeleteFunc(slices.Clone(old), func(p refPath) bool { return p == path })
	switch {
	case add && multipath && len(others) == len(old):
		m.ref.routes[k] = append(old, path)
	case add && !multipath:
		m.ref.routes[k] = []refPath{path}
	case !add && multipath:
		m.ref.routes[k] = others
	case !add:
		m.ref.routes[k] = nil
	}
	if len(m.ref.routes[k]) == 0 {
		delete(m.ref.routes, k)
	}
}

func (m *machine) changeNeighbour(t *rapid.T) {
	index := m.index(t)
	add := rapid.Bool().Draw(t, "add")
	s := rapid.SampledFrom([]string{"10.0.0.9", "10.0.3.9", "10.0.1.3", "fd00::9"}).Draw(t, "address")
	i := m.ref.interfaces[index]
	addr := netip.MustParseAddr(s)
	if index == 0 {
		return // local0 has no link
	}
	err := m.neighbour(t, index, s, add)
	if add && agree(t, "add neighbour", err, i != nil) {
		i.neighbours[addr] = true
	}
	if !add && agree(t, "delete neighbour", err, i != nil && i.neighbours[addr]) {
		delete(i.neighbours, addr)
	}
}

// key returns the key of an IPv4 table.
func key(table uint32) forward.TableKey { return forward.TableKey{Family: forward.IP4, ID: table} }
