package api

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/go-cmp/cmp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// check compares all dumps and the engine with the reference.
func (m *machine) check(t *rapid.T) {
	t.Helper()
	m.checkInterfaces(t)
	m.checkTables(t)
	m.checkNeighbours(t)
	checkRestore(t, m.model, m.engine)
	if m.engine.Unpublished() {
		t.Fatalf("changes were not published")
	}
	m.engine.Look(func(s modeltest.State) {
		if len(s.Interfaces) != len(m.ref.interfaces) {
			t.Fatalf("the engine has %d interfaces", len(s.Interfaces))
		}
		for index, i := range s.Interfaces {
			if r := m.ref.interfaces[interface_types.InterfaceIndex(index)]; r == nil || r.up != i.Up ||
				r.table != i.Table4 || len(r.addresses) != len(i.Addresses) {
				t.Fatalf("interface %d in the engine: %+v, wanted %+v", index, i, r)
			}
		}
	})
}

func (m *machine) checkInterfaces(t *rapid.T) {
	t.Helper()
	list := m.interfaces(t)
	if len(list) != len(m.ref.interfaces) {
		t.Fatalf("%d interfaces, wanted %d", len(list), len(m.ref.interfaces))
	}
	for _, d := range list {
		i := m.ref.interfaces[d.SwIfIndex]
		up := d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0
		if i == nil || i.name != d.InterfaceName || i.tag != d.Tag || i.up != up {
			t.Fatalf("%+v, wanted %+v", d, i)
		}
		var want []string
		for _, p := range i.addresses {
			want = append(want, p.String())
		}
		got := append(m.addresses(t, d.SwIfIndex, false), m.addresses(t, d.SwIfIndex, true)...)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("addresses of %s: %v, wanted %v", i.name, got, want)
		}
	}
}

func (m *machine) checkTables(t *rapid.T) {
	t.Helper()
	var got []uint32
	for _, table := range m.tables(t) {
		if !table.IsIP6 {
			got = append(got, table.TableID)
		}
	}
	want := slices.DeleteFunc([]uint32{0, 1, 2}, func(id uint32) bool { return !m.ref.exists(id) })
	if !slices.Equal(got, want) {
		t.Fatalf("tables %v, wanted %v", got, want)
	}
	for _, id := range want {
		m.checkRoutes(t, id)
	}
}

func (m *machine) checkRoutes(t *rapid.T, table uint32) {
	t.Helper()
	got := map[netip.Prefix]uint8{}
	for _, r := range m.routes(t, ip.IPTable{TableID: table}, 0) {
		p, err := fromPrefix(r.Prefix)
		if err != nil {
			t.Fatalf("%v", err)
		}
		p = p.Masked() // the dump shows it as its first source wrote it
		got[p] = r.Src
		if r.Src == 8 {
			m.checkPaths(t, r, m.ref.routes[refPrefix{table, p}])
		}
	}
	if diff := cmp.Diff(m.ref.prefixes(table), got,
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Fatalf("routes of table %d, wanted (-) and got (+):\n%s", table, diff)
	}
	m.engine.Look(func(s modeltest.State) {
		inEngine := slices.Collect(maps.Keys(s.Tables[key(table)]))
		for _, p := range inEngine {
			if _, ok := got[p]; !ok {
				t.Fatalf("the engine has an extra route to %s", p)
			}
		}
		if len(inEngine) != len(got) {
			t.Fatalf("the engine has %d routes of %d", len(inEngine), len(got))
		}
	})
}

func (m *machine) checkPaths(t *rapid.T, r ip.IPRouteV2, want []refPath) {
	t.Helper()
	var got []string
	for _, p := range r.Paths {
		got = append(got, refPath{p.SwIfIndex, netip.AddrFrom4(p.Nh.Address.GetIP4()).String()}.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("paths to %v: %v, wanted %v", r.Prefix, got, want)
	}
}

func (m *machine) checkNeighbours(t *rapid.T) {
	t.Helper()
	count := 0
	for _, af := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		for _, n := range m.neighbours(t, af) {
			addr, err := fromAddress(n.IPAddress)
			if i := m.ref.interfaces[n.SwIfIndex]; err != nil || i == nil || !i.neighbours[addr] {
				t.Fatalf("extra neighbour %v", n)
			}
			count++
		}
	}
	for _, i := range m.ref.interfaces {
		count -= len(i.neighbours)
	}
	if count != 0 {
		t.Fatalf("%d neighbours are missing", -count)
	}
}

// wipe deletes what the dumps list and checks that neither the dumps nor the engine have state left.
func (m *machine) wipe(t *rapid.T) {
	for _, af := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		_, _ = invoke(t, m.testClient, m.nbrs.IPNeighborFlush, &ip_neighbor.IPNeighborFlush{
			SwIfIndex: allInterfaces,
			Af:        af,
		})
	}
	for _, d := range m.interfaces(t) {
		_, _ = invoke(t, m.testClient, m.ifs.SwInterfaceSetTable, &interfaces.SwInterfaceSetTable{
			SwIfIndex: d.SwIfIndex,
		})
		_, _ = invoke(t, m.testClient, m.ifs.SwInterfaceSetFlags, &interfaces.SwInterfaceSetFlags{
			SwIfIndex: d.SwIfIndex,
		})
		_, _ = invoke(t, m.testClient, m.ifs.SwInterfaceTagAddDel, &interfaces.SwInterfaceTagAddDel{
			SwIfIndex: d.SwIfIndex,
		})
		_, _ = invoke(t, m.testClient, m.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: d.SwIfIndex})
		_, _ = invoke(t, m.testClient, m.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: d.SwIfIndex})
	}
	for _, table := range m.tables(t) {
		// A dump shows only the best source of a route: routes of the API can appear after those of interfaces are
		// deleted.
		for _, r := range m.routes(t, table, 8) {
			_, _ = invoke(t, m.testClient, m.ips.IPRouteAddDelV2, &ip.IPRouteAddDelV2{
				Route: ip.IPRouteV2{TableID: table.TableID, Prefix: r.Prefix},
			})
		}
		_, _ = invoke(t, m.testClient, m.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{Table: table})
	}
	m.ref = newReference()
	m.check(t)
	m.engine.Look(func(s modeltest.State) {
		if len(s.Taps)+len(s.Neighbours) > 0 || len(s.Interfaces) != 1 || len(s.Tables) != 2 {
			t.Fatalf("left in the engine: %+v", s)
		}
	})
}
