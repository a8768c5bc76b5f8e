package model

import (
	"strconv"

	"github.com/weftnet/weft/vswitch/frame"
)

// maxLoopbacks is VPP's LOOPBACK_MAX_INSTANCE.
const maxLoopbacks = 16 << 10

// Loopback holds the parameters of Loopbacks.Add.
type Loopback struct {
	MAC       frame.MAC // zero: de:ad:00:00:00 and the instance
	Specified bool      // use Instance; otherwise the lowest free one
	Instance  uint32
}

type loopback struct{ instance uint32 }

// Loopbacks are the loopbacks.
type Loopbacks struct {
	*barrier
	interfaces *Interfaces
}

// Add creates loop<instance> and returns its index.
func (ls *Loopbacks) Add(l Loopback) (uint32, error) {
	defer ls.change()()
	want := NoIndex
	if l.Specified {
		want = min(l.Instance, maxLoopbacks)
	}
	instance, free := chooseInstance(ls.interfaces, want, func(l *loopback) uint32 { return l.instance })
	if !free || instance >= maxLoopbacks {
		return NoIndex, InvalidRegistration
	}
	if l.MAC.IsZero() {
		l.MAC = frame.MAC{0: 0xde, 1: 0xad, 5: byte(instance)}
	}
	index, err := ls.interfaces.freeIndexLocked()
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
	return ls.interfaces.addLocked(i)
}

// Delete deletes a loopback. For other interfaces it returns InvalidSwIfIndex.
func (ls *Loopbacks) Delete(index uint32) error { return deleteKind[loopback](ls.interfaces, index) }
