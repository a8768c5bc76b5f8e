package devicemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
)

// Restore adds the allocations of the state file, and the attachments that use them. Call it before the loop runs; it
// may be called again with more. It repairs and logs contradictions.
func (m *Manager) Restore(saved []Saved, attachments []*pod.Attachment) {
	for _, s := range saved {
		a := s.allocation()
		if err := a.validate(); err != nil {
			m.config.Log.Error("ignoring invalid allocation of the state file", "allocation", s.ID, "err", err)
			continue
		}
		m.adopt(a)
	}
	for _, a := range attachments {
		for _, in := range a.Interfaces {
			if in.Memif != nil {
				m.users.use(in.Memif.Allocation, a.Key, a.Pod)
			}
		}
	}
}

// adopt adds an allocation of an earlier run. If two allocations have the same device, the younger one keeps it:
// kubelet gave it the device later. A duplicate socket number is replaced.
func (m *Manager) adopt(a *allocation) {
	own := *a
	for _, other := range m.table.holders(own.Devices) {
		older := other
		younger := &own
		if own.Created.Before(other.Created) {
			older = &own
			younger = other
		}
		m.config.Log.Error("two allocations have the same device, the younger keeps it", "allocation", younger.ID,
			"other", older.ID)
		left := *older
		left.Devices = without(older.Devices, younger.Devices)
		if older == &own {
			own = left
			continue
		}
		m.table.swap(left.ID, &left)
		m.table.markUnsaved(left.ID)
	}
	taken := func(other *allocation) bool { return other.Socket == own.Socket }
	if own.Socket == 0 || slices.ContainsFunc(m.table.inOrder(), taken) {
		own.Socket = m.table.freeSocket()
		m.table.markUnsaved(own.ID)
	}
	m.table.swap(own.ID, &own)
}

// Rebuild creates the parent directories of known allocations and finds allocations that the state file does not have:
// the file was lost, or an agent ended before it saved one. Call it at each start, after Restore and before the first
// resync, which saves the found allocations. A directory without a trusted record becomes an allocation without
// devices, which the collector releases later.
func (m *Manager) Rebuild() error {
	// not fatal: the agent has other work, and Allocate fails with the same error
	if err := m.prepareNode(); err != nil {
		m.config.Log.Error("devices cannot be allocated", "err", err)
	}
	entries, err := os.ReadDir(m.config.Directories.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find allocations: %w", err)
	}
	for _, id := range allocationIDs(entries) {
		if m.table.find(id) != nil {
			continue
		}
		a, err := readAllocation(filepath.Join(m.config.Directories.Root, id))
		if err != nil {
			m.config.Log.Warn("directory of an unknown allocation, its devices are not allocated", "allocation", id,
				"err", err)
			if a, err = m.factory.newAllocation(id, nil); err != nil {
				return err
			}
		} else {
			m.config.Log.Warn("allocation rebuilt from its owner record", "allocation", id,
				"devices", strings.Join(a.Devices, " "))
		}
		m.adopt(a)
		m.table.markUnsaved(id)
	}
	return nil
}

// prepareNode calls prepare if there are allocations, or a kubelet that may request some.
func (m *Manager) prepareNode() error {
	_, err := os.Stat(m.config.Kubelet.PluginDir)
	if err != nil && len(m.table.inOrder()) == 0 {
		return nil
	}
	return m.disk.prepare()
}
