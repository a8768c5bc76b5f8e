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

// admissionTime bounds the time between the Allocate requests of one pod: kubelet sends them one after the other.
const admissionTime = 10 * time.Second

// Allocate handles kubelet's Allocate for one container. Kubelet does not name the container.
func (m *Manager) Allocate(_ context.Context, ev *pod.AllocateDevice, txn *eventloop.Txn) error {
	devices, err := m.checkDevices(ev.Devices)
	if err != nil {
		return err
	}
	if err := m.refuseClaimed(devices); err != nil {
		return err
	}
	id, err := m.newID()
	if err != nil {
		return fmt.Errorf("id of the allocation: %w", err)
	}
	a, err := m.newAllocation(id, devices)
	if err != nil {
		return err
	}
	if err := m.takeDevices(a, txn); err != nil {
		return err
	}
	m.put(id, a, txn)
	if err := m.putValues(a, txn); err != nil {
		return err
	}
	txn.Save(bucket, id, a.saved())
	given := a.clone()
	ev.Allocation = &given
	return nil
}

// newAllocation returns an allocation that no container has yet.
func (m *Manager) newAllocation(id string, devices []string) (*allocation, error) {
	text, err := m.newSecret()
	if err != nil {
		return nil, fmt.Errorf("secret of the allocation: %w", err)
	}
	return &allocation{Allocation: pod.Allocation{
		ID: id, Socket: m.freeSocket(), Devices: devices, Directory: filepath.Join(m.config.Root, id),
		Created: m.config.Now().UTC().Round(0), Secret: text, GID: pod.UnknownGroup,
	}}, nil
}

// checkDevices returns the devices sorted and without duplicates. It rejects a device that this node does not have.
func (m *Manager) checkDevices(devices []string) ([]string, error) {
	for _, device := range devices {
		if n, ok := deviceNumber(device); !ok || n >= m.config.pluginCount() {
			return nil, fmt.Errorf("kubelet asks for device %q: %s has %s to %s", device, pod.Resource, deviceID(0), deviceID(m.config.pluginCount()-1))
		}
	}
	devices = slices.Clone(devices)
	slices.Sort(devices)
	return slices.Compact(devices), nil
}

// freeSocket returns the lowest unused socket number.
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

// takeDevices removes the devices of the new allocation from their previous allocations. Kubelet gives a device to another
// container after its pod has ended; the collector releases the previous allocation later.
func (m *Manager) takeDevices(to *allocation, txn *eventloop.Txn) error {
	for _, had := range m.holders(to.Devices) {
		left := *had
		left.Devices = without(had.Devices, to.Devices)
		if !had.Granted && to.Created.Sub(had.Created) < admissionTime {
			left.successor = to.ID
		}
		m.put(had.ID, &left, txn)
		if err := m.putValues(&left, txn); err != nil {
			return err
		}
		txn.Save(bucket, left.ID, left.saved())
	}
	return nil
}

// without returns the devices that are not among taken, nil if there are none.
func without(devices, taken []string) (left []string) {
	for _, d := range devices {
		if !slices.Contains(taken, d) {
			left = append(left, d)
		}
	}
	return left
}

// Release deletes an allocation and its files.
func (m *Manager) Release(_ context.Context, ev *pod.ReleaseDevice, txn *eventloop.Txn) error {
	a := m.find(ev.Allocation)
	if a == nil {
		return nil
	}
	return m.drop(a, txn)
}

// drop deletes an allocation and its files. It fails while an attachment uses the allocation.
func (m *Manager) drop(a *allocation, txn *eventloop.Txn) error {
	if user, used := m.user(a.ID); used {
		return fmt.Errorf("an attachment of pod %s still uses it", user)
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
