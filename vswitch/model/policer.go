package model

import (
	"fmt"
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

// Policers are the policers and their use by interfaces.
type Policers struct {
	*barrier
	interfaces *Interfaces
	byIndex    map[uint32]*policer
}

func newPolicers(b *barrier, interfaces *Interfaces) *Policers {
	return &Policers{barrier: b, interfaces: interfaces, byIndex: map[uint32]*policer{}}
}

// Add adds a policer with a full bucket and returns its index, the lowest free one.
func (ps *Policers) Add(p Policer) (uint32, error) {
	defer ps.change()()
	if err := p.validate(); err != nil {
		return NoIndex, err
	}
	if _, known := ps.namedLocked(p.Name); known {
		return NoIndex, ValueExist
	}
	index := uint32(0)
	for ps.byIndex[index] != nil {
		index++
	}
	ps.putLocked(index, p)
	return index, nil
}

// Update changes everything but the name of a policer, and fills its bucket.
func (ps *Policers) Update(index uint32, p Policer) error {
	defer ps.change()()
	old := ps.byIndex[index]
	if old == nil {
		return NoSuchEntry
	}
	p.Name = old.Name
	if err := p.validate(); err != nil {
		return err
	}
	ps.putLocked(index, p)
	ps.syncLocked(index)
	return nil
}

// Reset fills the bucket of a policer.
func (ps *Policers) Reset(index uint32) error {
	defer ps.change()()
	old := ps.byIndex[index]
	if old == nil {
		return NoSuchEntry
	}
	ps.putLocked(index, old.Policer)
	ps.syncLocked(index)
	return nil
}

func (ps *Policers) putLocked(index uint32, p Policer) {
	ps.byIndex[index] = &policer{Policer: p, bucket: forward.NewPolicer(p.config())}
}

// Delete deletes a policer, and removes it from its interfaces, where VPP keeps the index of freed memory.
func (ps *Policers) Delete(index uint32) error {
	defer ps.change()()
	if ps.byIndex[index] == nil {
		return NoSuchEntry
	}
	delete(ps.byIndex, index)
	for _, i := range ps.interfaces.byIndex {
		for direction, used := range i.policers {
			if used == index {
				i.policers[direction] = NoIndex
				ps.interfaces.syncLocked(i)
			}
		}
	}
	return nil
}

// syncLocked writes the interfaces of a policer to the engine.
func (ps *Policers) syncLocked(index uint32) {
	for _, i := range ps.interfaces.byIndex {
		if slices.Contains(i.policers[:], index) {
			ps.interfaces.syncLocked(i)
		}
	}
}

// Named returns the index of a policer.
func (ps *Policers) Named(name string) (uint32, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if index, known := ps.namedLocked(name); known {
		return index, nil
	}
	return NoIndex, NoSuchEntry
}

func (ps *Policers) namedLocked(name string) (uint32, bool) {
	for index, p := range ps.byIndex {
		if p.Name == name {
			return index, true
		}
	}
	return NoIndex, false
}

// Apply applies a policer to an interface, or removes the policer of the interface. As in VPP the policer must
// exist, also to be removed, and need not be the one that is removed.
func (ps *Policers) Apply(on, index uint32, direction Policing, apply bool) error {
	return ps.interfaces.with(on, func(i *iface) error {
		if ps.byIndex[index] == nil {
			return NoSuchEntry
		}
		i.policers[direction] = NoIndex
		if apply {
			i.policers[direction] = index
		}
		ps.interfaces.syncLocked(i)
		return nil
	})
}

// IsPoliced reports whether an interface has a policer.
func (ps *Policers) IsPoliced(on uint32, direction Policing) (bool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i, err := ps.interfaces.findLocked(on)
	if err != nil {
		return false, err
	}
	return i.policers[direction] != NoIndex, nil
}

// List lists the policer of an index, or all for NoIndex, by index.
func (ps *Policers) List(index uint32) []Policer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var all []Policer
	for _, n := range slices.Sorted(maps.Keys(ps.byIndex)) {
		if index == NoIndex || index == n {
			all = append(all, ps.byIndex[n].Policer)
		}
	}
	return all
}

// Violations counts the packets that a policer dropped.
type Violations struct{ Packets, Bytes uint64 }

// Violations lists the violations of policers by index; free indexes have no packets.
func (ps *Policers) Violations() []Violations {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var all []Violations
	for index, p := range ps.byIndex {
		all = append(all, make([]Violations, max(0, int(index)+1-len(all)))...)
		all[index].Packets, all[index].Bytes = p.bucket.Dropped()
	}
	return all
}

func (ps *Policers) configureLocked(i *iface, f *forward.Interface) {
	f.PoliceInput = ps.bucketLocked(i, PoliceInput)
	f.PoliceOutput = ps.bucketLocked(i, PoliceOutput)
}

// bucketLocked returns the bucket of a policer of an interface, or nil.
func (ps *Policers) bucketLocked(i *iface, direction Policing) *forward.Policer {
	if p := ps.byIndex[i.policers[direction]]; p != nil {
		return p.bucket
	}
	return nil
}

// checkLocked checks that the policers of an interface exist.
func (ps *Policers) checkLocked(i *iface) error {
	for _, p := range i.policers {
		if p != NoIndex && ps.byIndex[p] == nil {
			return fmt.Errorf("%w: %s has policer %d, which is missing", errState, i.Name, p)
		}
	}
	return nil
}

func (ps *Policers) stateLocked(s *State) {
	for _, index := range slices.Sorted(maps.Keys(ps.byIndex)) {
		s.Policers = append(s.Policers, PolicerState{ps.byIndex[index].Policer, index})
	}
}

func (ps *Policers) restoreLocked(s *State) error {
	for _, p := range s.Policers {
		if err := p.validate(); err != nil {
			return fmt.Errorf("%w: policer %d (%s): %w", errState, p.Index, p.Name, err)
		}
		if ps.byIndex[p.Index] != nil {
			return fmt.Errorf("%w: policer %d twice", errState, p.Index)
		}
		ps.putLocked(p.Index, p.Policer)
	}
	return nil
}
