package model

import (
	"maps"
	"math"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// PolicerAction is applied to the packets of a colour, with the numbers of VPP's API.
type PolicerAction struct {
	Type uint8
	DSCP uint8 // of policerMark
}

const (
	policerDrop     = 0
	policerTransmit = 1
	policerMark     = 2 // and transmit
)

// maxDSCP is the largest value of six bits.
const maxDSCP = 1<<6 - 1

// Policer holds the fields of policer_add_del. Of VPP's policers the model has those with one rate and two colours
// (1R2C), in kilobits per second, that drop what exceeds the rate: the others are rejected (UNIMPLEMENTED).
type Policer struct {
	Name       string // at most 63 bytes
	Rate       uint32 // committed information rate, kilobits per second
	ExcessRate uint32
	Burst      uint64 // bytes; above 32 bits the largest of them
	Excess     uint64 // excess burst
	Conform    PolicerAction
	Exceed     PolicerAction
	Violate    PolicerAction
	RateType   uint8 // 0: kilobits per second
	RoundType  uint8
	Type       uint8 // 0: 1R2C
	ColorAware bool
}

// roundTypes is the number of VPP's types of rounding, which the model does not need.
const roundTypes = 3

// validate rejects as pol_logical_2_physical does (VPP 25.10, src/vnet/policer/xlate.c), and policers that the packet
// path lacks.
func (p Policer) validate() error {
	switch {
	case len(p.Name) > maxTag, p.RoundType >= roundTypes, p.Conform.DSCP > maxDSCP:
		return InvalidValue
	case p.RateType != 0, p.Type != 0, p.ColorAware:
		return Unimplemented
	case p.Rate == 0, p.Burst == 0, p.ExcessRate != 0, p.Excess != 0:
		return InvalidValue
	case p.Conform.Type != policerTransmit && p.Conform.Type != policerMark, p.Violate.Type != policerDrop:
		return Unimplemented
	}
	return nil
}

func (p Policer) config() forward.PolicerConfig {
	return forward.PolicerConfig{
		Rate:  p.Rate,
		Burst: uint32(min(p.Burst, math.MaxUint32)),
		Marks: p.Conform.Type == policerMark,
		DSCP:  p.Conform.DSCP,
	}
}

// policer is a policer with its bucket in the packet path.
type policer struct {
	Policer
	bucket *forward.Policer
}

// Policing is a direction in which a policer is applied to an interface, as seen by the dataplane.
type Policing int

// The directions.
const (
	PoliceInput Policing = iota
	PoliceOutput
	policings
)

// noPolicers are the indexes of an interface without policers.
var noPolicers = [policings]uint32{NoIndex, NoIndex}

// AddPolicer adds a policer with a full bucket and returns its index, the lowest free one.
func (m *Model) AddPolicer(p Policer) (uint32, error) {
	defer m.change()()
	if err := p.validate(); err != nil {
		return NoIndex, err
	}
	if _, known := m.policerNamedLocked(p.Name); known {
		return NoIndex, ValueExist
	}
	index := uint32(0)
	for m.policers[index] != nil {
		index++
	}
	m.putPolicerLocked(index, p)
	return index, nil
}

// UpdatePolicer changes everything but the name of a policer, and fills its bucket.
func (m *Model) UpdatePolicer(index uint32, p Policer) error {
	defer m.change()()
	old := m.policers[index]
	if old == nil {
		return NoSuchEntry
	}
	p.Name = old.Name
	if err := p.validate(); err != nil {
		return err
	}
	m.putPolicerLocked(index, p)
	m.syncPolicedLocked(index)
	return nil
}

// ResetPolicer fills the bucket of a policer.
func (m *Model) ResetPolicer(index uint32) error {
	defer m.change()()
	old := m.policers[index]
	if old == nil {
		return NoSuchEntry
	}
	m.putPolicerLocked(index, old.Policer)
	m.syncPolicedLocked(index)
	return nil
}

func (m *Model) putPolicerLocked(index uint32, p Policer) {
	m.policers[index] = &policer{Policer: p, bucket: forward.NewPolicer(p.config())}
}

// DeletePolicer deletes a policer, and removes it from its interfaces, where VPP keeps the index of freed memory.
func (m *Model) DeletePolicer(index uint32) error {
	defer m.change()()
	if m.policers[index] == nil {
		return NoSuchEntry
	}
	delete(m.policers, index)
	for _, i := range m.Interfaces.byIndex {
		for direction, used := range i.policers {
			if used == index {
				i.policers[direction] = NoIndex
				m.Interfaces.syncLocked(i)
			}
		}
	}
	return nil
}

// syncPolicedLocked writes the interfaces of a policer to the engine.
func (m *Model) syncPolicedLocked(index uint32) {
	for _, i := range m.Interfaces.byIndex {
		if slices.Contains(i.policers[:], index) {
			m.Interfaces.syncLocked(i)
		}
	}
}

// PolicerNamed returns the index of a policer.
func (m *Model) PolicerNamed(name string) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index, known := m.policerNamedLocked(name); known {
		return index, nil
	}
	return NoIndex, NoSuchEntry
}

func (m *Model) policerNamedLocked(name string) (uint32, bool) {
	for index, p := range m.policers {
		if p.Name == name {
			return index, true
		}
	}
	return NoIndex, false
}

// ApplyPolicer applies a policer to an interface, or removes the policer of the interface. As in VPP the policer must
// exist, also to be removed, and need not be the one that is removed.
func (m *Model) ApplyPolicer(on, index uint32, direction Policing, apply bool) error {
	return m.Interfaces.with(on, func(i *iface) error {
		if m.policers[index] == nil {
			return NoSuchEntry
		}
		i.policers[direction] = NoIndex
		if apply {
			i.policers[direction] = index
		}
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// IsPoliced reports whether an interface has a policer.
func (m *Model) IsPoliced(on uint32, direction Policing) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.Interfaces.findLocked(on)
	if err != nil {
		return false, err
	}
	return i.policers[direction] != NoIndex, nil
}

// Policers lists the policer of an index, or all for NoIndex, by index.
func (m *Model) Policers(index uint32) []Policer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Policer
	for _, n := range slices.Sorted(maps.Keys(m.policers)) {
		if index == NoIndex || index == n {
			all = append(all, m.policers[n].Policer)
		}
	}
	return all
}

// Violations counts the packets that a policer dropped.
type Violations struct{ Packets, Bytes uint64 }

// Violations lists the violations of policers by index; free indexes have no packets.
func (m *Model) Violations() []Violations {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Violations
	for index, p := range m.policers {
		all = append(all, make([]Violations, max(0, int(index)+1-len(all)))...)
		all[index].Packets, all[index].Bytes = p.bucket.Dropped()
	}
	return all
}

// bucketLocked returns the bucket of a policer of an interface, or nil.
func (m *Model) bucketLocked(i *iface, direction Policing) *forward.Policer {
	if p := m.policers[i.policers[direction]]; p != nil {
		return p.bucket
	}
	return nil
}
