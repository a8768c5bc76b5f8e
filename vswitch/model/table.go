package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

var families = [...]forward.Family{forward.IP4, forward.IP6}

// Table is the table of a VRF for one family.
type Table struct {
	forward.TableKey
	Name string
}

// table is a Table with its routes. It exists while it is added by the API or has users.
type table struct {
	Table
	byAPI   bool // added by the API
	users   int  // interfaces, tunnels and paths that use it
	entries map[netip.Prefix]*entry
}

// AddTable adds a table. A table that still exists because it has users keeps its name. Table 0 always exists.
func (m *Model) AddTable(k forward.TableKey, name string) {
	defer m.change()()
	if k.ID == 0 {
		return
	}
	if m.fib.tables[k] == nil {
		m.fib.makeTable(k, cutTag(name))
		m.fib.reinstallLookups(k)
	}
	m.fib.tables[k].byAPI = true
}

// DeleteTable deletes a table. A table with users keeps existing, with its routes, until its last user is gone. Unknown
// tables and table 0 are ignored.
func (m *Model) DeleteTable(k forward.TableKey) {
	defer m.change()()
	if t := m.fib.tables[k]; t != nil && t.byAPI {
		t.byAPI = false
		m.fib.deleteUnused(t)
	}
}

// Tables lists the tables by family and id.
func (m *Model) Tables() []Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Table
	for _, t := range m.fib.tables {
		list = append(list, t.Table)
	}
	slices.SortFunc(list, func(a, b Table) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// SetTable moves an interface to a VRF. It fails while the interface or its donor has addresses of the family.
func (m *Model) SetTable(index uint32, k forward.TableKey) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if m.fib.tables[k] == nil {
			return NoSuchFIB
		}
		if slices.ContainsFunc(m.Interfaces.addressesLocked(i), func(p netip.Prefix) bool {
			return forward.FamilyOf(p.Addr()) == k.Family
		}) {
			return AddressFoundForInterface
		}
		m.setTableLocked(i, k)
		return nil
	})
}

// TableOf returns the VRF of an interface, or NoIndex with an error.
func (m *Model) TableOf(index uint32, f forward.Family) (id uint32, err error) {
	id = NoIndex
	err = m.Interfaces.with(index, func(i *iface) error { id = i.vrfs[f]; return nil })
	return id, err
}

func (fb *fib) makeTable(k forward.TableKey, name string) {
	if name == "" {
		name = fmt.Sprintf("ipv%d-VRF:%d", k.Family, k.ID)
	}
	fb.tables[k] = &table{Table: Table{TableKey: k, Name: name}, entries: map[netip.Prefix]*entry{}}
	fb.engine.AddTable(k)
	for _, s := range specialRoutes[k.Family] {
		path := dropPath
		path.Kind = s.kind
		fb.set(routeKey{k, netip.MustParsePrefix(s.prefix)}, s.source, fibRoute{paths: []Path{path}})
	}
}

var dropPath = Path{Kind: PathDrop, Interface: NoIndex, Weight: 1}

// specialRoutes are the routes that VPP adds to each table.
var specialRoutes = map[forward.Family][]struct {
	prefix string
	source Source
	kind   PathKind
}{
	forward.IP4: {
		{"0.0.0.0/0", SourceDefault, PathDrop}, {"0.0.0.0/32", SourceDefault, PathDrop}, {
			"224.0.0.0/4", SourceSpecial, PathDrop,
		},
		{"240.0.0.0/4", SourceSpecial, PathDrop}, {"255.255.255.255/32", SourceDefault, PathDrop},
	},
	forward.IP6: {{"::/0", SourceDefault, PathDrop}, {"fe80::/10", SourceSpecial, PathLinkLocal}},
}

// setTableLocked moves an interface and the host routes of its neighbours to a VRF.
func (m *Model) setTableLocked(i *iface, k forward.TableKey) {
	old := i.table(k.Family)
	if old == k {
		return
	}
	for a := range i.neighbours {
		if forward.FamilyOf(a) == k.Family {
			m.Neighbours.deleteRouteLocked(i, a)
		}
	}
	m.fib.tables[k].users++
	i.vrfs[k.Family] = k.ID
	m.Interfaces.syncLocked(i)
	m.fib.release(old)
	m.Neighbours.updateRoutesLocked(i)
}

func (fb *fib) release(k forward.TableKey) {
	if t := fb.tables[k]; t != nil {
		t.users--
		fb.deleteUnused(t)
	}
}

// deleteUnused deletes a table without users, with its remaining routes.
func (fb *fib) deleteUnused(t *table) {
	if t.ID == 0 || t.byAPI || t.users > 0 {
		return
	}
	for _, p := range slices.Collect(maps.Keys(t.entries)) {
		for s := range t.entries[p].sources {
			fb.delete(routeKey{t.TableKey, p}, s)
		}
	}
	fb.tableDeleted(t.TableKey)
	delete(fb.tables, t.TableKey)
	fb.engine.DelTable(t.TableKey)
	fb.reinstallLookups(t.TableKey)
}

// reinstallLookups installs the routes that look up in a table, after it was added or deleted.
func (fb *fib) reinstallLookups(k forward.TableKey) {
	for other, t := range fb.tables {
		for p, e := range t.entries {
			_, r := e.best()
			if other.Family == k.Family && slices.ContainsFunc(r.paths, func(p Path) bool {
				return p.Kind == PathNormal && p.Interface == NoIndex && p.Table == k.ID
			}) {
				fb.install(routeKey{other, p})
			}
		}
	}
}
