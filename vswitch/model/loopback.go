package model

import (
	"strconv"

	"github.com/weftnet/weft/vswitch/frame"
)

// maxLoopbacks is VPP's LOOPBACK_MAX_INSTANCE.
const maxLoopbacks = 16 << 10

// Loopback holds the parameters of AddLoopback.
type Loopback struct {
	MAC       frame.MAC // zero: de:ad:00:00:00 and the instance
	Specified bool      // use Instance; otherwise the lowest free one
	Instance  uint32
}

type loopback struct{ instance uint32 }

// AddLoopback creates loop<instance> and returns its index.
func (m *Model) AddLoopback(l Loopback) (uint32, error) {
	defer m.change()()
	want := NoIndex
	if l.Specified {
		want = min(l.Instance, maxLoopbacks)
	}
	instance, free := chooseInstance(m.Interfaces, want, func(l *loopback) uint32 { return l.instance })
	if !free || instance >= maxLoopbacks {
		return NoIndex, InvalidRegistration
	}
	if l.MAC.IsZero() {
		l.MAC = frame.MAC{0: 0xde, 1: 0xad, 5: byte(instance)}
	}
	index, err := m.Interfaces.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	i := newEthernet(Interface{
		Index:   index,
		Name:    "loop" + strconv.Itoa(int(instance)),
		DevType: "Loopback",
		MAC:     l.MAC,
	})
	i.kind = &loopback{instance}
	return m.Interfaces.addLocked(i)
}

// DeleteLoopback deletes a loopback. For other interfaces it returns InvalidSwIfIndex.
func (m *Model) DeleteLoopback(index uint32) error { return deleteKind[loopback](m.Interfaces, index) }
