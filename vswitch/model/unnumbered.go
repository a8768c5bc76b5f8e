package model

// Unnumbered is an interface that uses another's addresses.
type Unnumbered struct {
	Index uint32
	Donor uint32
}

// SetUnnumbered lets an interface use the donor's addresses. Both must be in the same VRFs. VPP would mix up
// the addresses of an interface that has some of its own, and those of a chain; here both are refused.
func (m *Model) SetUnnumbered(index, donor uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	d, ok := m.interfaces[donor]
	if !ok {
		return InvalidSwIfIndex2
	}
	if d.table4 != i.table4 || d.table6 != i.table6 || i == d || d.donor != NoIndex || len(i.addresses) > 0 || m.donatesLocked(i) {
		return UnexpectedInterfaceState
	}
	i.donor = donor
	m.setEngineLocked(i)
	m.refineLocked(i)
	return nil
}

// ClearUnnumbered ends that; an interface that is not unnumbered is no error.
func (m *Model) ClearUnnumbered(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	i.donor = NoIndex
	m.setEngineLocked(i)
	m.refineLocked(i)
	return nil
}

// Unnumbered lists the interface of that index if it is unnumbered, or all that are for NoIndex.
func (m *Model) Unnumbered(index uint32) []Unnumbered {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Unnumbered
	for _, n := range m.indexesLocked() {
		if i := m.interfaces[n]; i.donor != NoIndex && (index == NoIndex || index == n) {
			list = append(list, Unnumbered{Index: n, Donor: i.donor})
		}
	}
	return list
}

func (m *Model) donatesLocked(i *iface) bool {
	for _, other := range m.interfaces {
		if other.donor == i.Index {
			return true
		}
	}
	return false
}
