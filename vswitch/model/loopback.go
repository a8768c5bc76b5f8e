package model

import (
	"strconv"

	"github.com/weftnet/weft/vswitch/frame"
)

// maxLoopbacks is VPP's LOOPBACK_MAX_INSTANCE.
const maxLoopbacks = 16 << 10

// Loopback says what loopback to make.
type Loopback struct {
	MAC       frame.MAC // zero: de:ad:00:00:00 and the instance
	Specified bool      // Instance is given; else the lowest free one is taken
	Instance  uint32
}

// AddLoopback makes loop<instance> and returns its index.
func (m *Model) AddLoopback(l Loopback) (uint32, error) {
	defer m.change()()
	instance, err := m.loopbackInstanceLocked(l)
	if err != nil {
		return NoIndex, err
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	if l.MAC.IsZero() {
		l.MAC = frame.MAC{0: 0xde, 1: 0xad, 5: byte(instance)}
	}
	i := newEthernet(Interface{Index: index, Name: "loop" + strconv.Itoa(int(instance)), DevType: "Loopback", MAC: l.MAC})
	i.loopback = &instance
	if err := m.addLocked(i); err != nil {
		return NoIndex, err
	}
	return index, nil
}

// DeleteLoopback removes a loopback; another interface is InvalidSwIfIndex.
func (m *Model) DeleteLoopback(index uint32) error {
	defer m.change()()
	i, ok := m.interfaces[index]
	if !ok || i.loopback == nil {
		return InvalidSwIfIndex
	}
	m.removeLocked(i)
	return nil
}

func (m *Model) loopbackInstanceLocked(l Loopback) (uint32, error) {
	taken := map[uint32]bool{}
	for _, i := range m.interfaces {
		if i.loopback != nil {
			taken[*i.loopback] = true
		}
	}
	if l.Specified {
		if l.Instance >= maxLoopbacks || taken[l.Instance] {
			return 0, InvalidRegistration
		}
		return l.Instance, nil
	}
	for n := range uint32(maxLoopbacks) {
		if !taken[n] {
			return n, nil
		}
	}
	return 0, InvalidRegistration
}
