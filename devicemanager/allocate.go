package devicemanager

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// inheritance is for how long after its making an allocation whose devices go to another one belongs to the same pod:
// kubelet asks for all containers of a pod at once.
const inheritance = 10 * time.Second

// Allocate is the handler of kubelet's Allocate: it makes an allocation for some container that kubelet does not name.
func (m *Manager) Allocate(_ context.Context, ev *pod.AllocateDevice, txn *eventloop.Txn) error {
	devices, err := m.ours(ev.Devices)
	if err != nil {
		return err
	}
	id, err := m.newID()
	if err != nil {
		return fmt.Errorf("name of the allocation: %w", err)
	}
	text, err := m.newSecret()
	if err != nil {
		return fmt.Errorf("secret of the allocation: %w", err)
	}
	a := &allocation{Allocation: pod.Allocation{
		ID: id, Socket: m.freeSocket(), Devices: devices, Directory: filepath.Join(m.config.Root, id),
		Created: m.config.Now().UTC().Round(0), Secret: text, GID: pod.UnknownGroup,
	}}
	if err := m.disinherit(a, txn); err != nil {
		return err
	}
	m.put(id, a, txn)
	if err := m.want(a, txn); err != nil {
		return err
	}
	txn.Save(bucket, id, a.saved())
	given := a.clone()
	ev.Allocation = &given
	return nil
}

// ours returns the devices sorted, each once, or says which is none of this node's.
func (m *Manager) ours(devices []string) ([]string, error) {
	for _, device := range devices {
		if n, ok := deviceNumber(device); !ok || n >= m.config.Count {
			return nil, fmt.Errorf("kubelet asks for device %q: %s has %s to %s", device, pod.Resource, deviceID(0), deviceID(m.config.Count-1))
		}
	}
	devices = slices.Clone(devices)
	slices.Sort(devices)
	return slices.Compact(devices), nil
}

// freeSocket is the lowest number of a socket that no allocation has.
func (m *Manager) freeSocket() uint32 {
	taken := make(map[uint32]bool)
	for _, a := range m.inOrder() {
		taken[a.Socket] = true
	}
	n := uint32(1)
	for taken[n] {
		n++
	}
	return n
}

// disinherit takes the devices of heir from those who had them. Kubelet gives a device away when it knows that the pod
// which had it is over; what stands on the node for that is collected in its time.
func (m *Manager) disinherit(heir *allocation, txn *eventloop.Txn) error {
	for _, had := range m.holders(heir.Devices) {
		left := *had
		left.Devices = slices.DeleteFunc(slices.Clone(had.Devices), func(d string) bool { return slices.Contains(heir.Devices, d) })
		if len(left.Devices) == 0 {
			left.Devices = nil
		}
		if !had.Granted && heir.Created.Sub(had.Created) < inheritance {
			left.heir = heir.ID
		}
		m.put(had.ID, &left, txn)
		if err := m.want(&left, txn); err != nil {
			return err
		}
		txn.Save(bucket, left.ID, left.saved())
	}
	return nil
}

// Release is the handler that takes an allocation away, with all that stands on the node for it.
func (m *Manager) Release(_ context.Context, ev *pod.ReleaseDevice, txn *eventloop.Txn) error {
	a := m.find(ev.Allocation)
	if a == nil {
		return nil
	}
	if user, used := m.user(a.ID); used {
		return fmt.Errorf("an attachment of pod %s still has a memif of it", user)
	}
	files, err := m.config.files(a)
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(files) {
		txn.Delete(wire.FileKey(f.path))
	}
	txn.Save(bucket, a.ID, nil)
	m.put(a.ID, nil, txn)
	return nil
}
