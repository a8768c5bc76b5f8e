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

// Table is a VRF's table of one family.
type Table struct {
	forward.TableKey
	Name string
}

// table is a Table with its routes. It lives while the API or anything else holds it.
type table struct {
	Table
	byAPI   bool // the API made it and has not deleted it
	users   int  // interfaces in it and paths that look up in it
	entries map[netip.Prefix]*entry
}

// AddTable makes a table, or takes hold again of one that the API had deleted while it was in use.
// Table 0 is always there. A name is kept from the first time.
func (m *Model) AddTable(k forward.TableKey, name string) {
	defer m.change()()
	if k.ID == 0 {
		return
	}
	if m.tables[k] == nil {
		m.makeTableLocked(k, cutTag(name))
		m.reviewLookupsLocked(k)
	}
	m.tables[k].byAPI = true
}

// DeleteTable lets go of a table. It stays, with its routes, while interfaces are in it.
// One that does not exist is no error, nor is table 0, which stays.
func (m *Model) DeleteTable(k forward.TableKey) {
	defer m.change()()
	if t := m.tables[k]; t != nil && t.byAPI {
		t.byAPI = false
		m.collectTableLocked(t)
	}
}

// Tables lists the tables by family and number.
func (m *Model) Tables() []Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Table
	for _, t := range m.tables {
		list = append(list, t.Table)
	}
	slices.SortFunc(list, func(a, b Table) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// SetTable moves an interface to a VRF. It is refused while the interface, or the one whose
// addresses it uses, has addresses of the family.
func (m *Model) SetTable(index uint32, k forward.TableKey) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if m.tables[k] == nil {
		return NoSuchFIB
	}
	for _, p := range m.addressesLocked(i) {
		if forward.FamilyOf(p.Addr()) == k.Family {
			return AddressFoundForInterface
		}
	}
	m.bindLocked(i, k)
	return nil
}

// TableOf is the VRF of an interface.
func (m *Model) TableOf(index uint32, f forward.Family) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return NoIndex, err
	}
	return i.table(f).ID, nil
}

func (m *Model) makeTableLocked(k forward.TableKey, name string) {
	if name == "" {
		name = fmt.Sprintf("ipv%d-VRF:%d", k.Family, k.ID)
	}
	m.tables[k] = &table{Table: Table{TableKey: k, Name: name}, entries: map[netip.Prefix]*entry{}}
	m.engine.AddTable(k)
	for _, s := range specials[k.Family] {
		path := dropPath
		path.Kind = s.kind
		m.setLocked(routeKey{k, netip.MustParsePrefix(s.prefix)}, s.source, fibRoute{paths: []Path{path}})
	}
}

// dropPath drops.
var dropPath = Path{Kind: PathDrop, Interface: NoIndex, Weight: 1}

// specials are the routes that VPP puts into each table.
var specials = map[forward.Family][]struct {
	prefix string
	source Source
	kind   PathKind
}{
	forward.IP4: {
		{"0.0.0.0/0", SourceDefault, PathDrop}, {"0.0.0.0/32", SourceDefault, PathDrop}, {"224.0.0.0/4", SourceSpecial, PathDrop},
		{"240.0.0.0/4", SourceSpecial, PathDrop}, {"255.255.255.255/32", SourceDefault, PathDrop},
	},
	forward.IP6: {{"::/0", SourceDefault, PathDrop}, {"fe80::/10", SourceSpecial, PathLinkLocal}},
}

// bindLocked moves the interface, its neighbours' routes with it.
func (m *Model) bindLocked(i *iface, k forward.TableKey) {
	old := i.table(k.Family)
	if old == k {
		return
	}
	for a := range i.neighbours {
		if forward.FamilyOf(a) == k.Family {
			m.unrefineLocked(i, a)
		}
	}
	m.tables[k].users++
	i.setTable(k)
	m.setEngineLocked(i)
	m.releaseTableLocked(old)
	m.refineLocked(i)
}

func (m *Model) releaseTableLocked(k forward.TableKey) {
	if t := m.tables[k]; t != nil {
		t.users--
		m.collectTableLocked(t)
	}
}

// collectTableLocked removes an unused table with its remaining routes.
func (m *Model) collectTableLocked(t *table) {
	if t.ID == 0 || t.byAPI || t.users > 0 {
		return
	}
	for _, p := range slices.Collect(maps.Keys(t.entries)) {
		for s := range t.entries[p].sources {
			m.dropLocked(routeKey{t.TableKey, p}, s)
		}
	}
	m.dropProxiesLocked(t.TableKey)
	delete(m.tables, t.TableKey)
	m.engine.DelTable(t.TableKey)
	m.reviewLookupsLocked(t.TableKey)
}

// reviewLookupsLocked installs again the routes whose next hops are looked up in a table that has come or gone.
func (m *Model) reviewLookupsLocked(k forward.TableKey) {
	for other, t := range m.tables {
		for p, e := range t.entries {
			_, r := e.best()
			if other.Family == k.Family && slices.ContainsFunc(r.paths, func(p Path) bool {
				return p.Kind == PathNormal && p.Interface == NoIndex && p.Table == k.ID
			}) {
				m.installLocked(routeKey{other, p})
			}
		}
	}
}
