package devicemanager

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/weftnet/weft/pod"
)

// Restore takes what the state file kept, and which attachments use it. It is to be called before the loop runs, and may
// be called again, with more. What contradicts itself is put right and logged.
func (m *Manager) Restore(saved []Saved, attachments []*pod.Attachment) {
	for _, s := range saved {
		a := s.allocation()
		if err := a.validate(); err != nil {
			m.config.Log.Error("allocation of the state file left out", "allocation", s.ID, "err", err)
			continue
		}
		m.adopt(a)
	}
	for _, a := range attachments {
		for _, in := range a.Interfaces {
			if in.Memif != nil {
				m.use(in.Memif.Allocation, a.Key, a.Pod)
			}
		}
	}
}

// validate refuses what no Allocate ever made. Names become names of files, so none is taken for granted.
func (a *allocation) validate() error {
	switch {
	case !isRandomText(a.ID, idLength):
		return errors.New("its name is none of ours")
	case !isRandomText(string(a.Secret), secretLength):
		return errors.New("its secret is none of ours")
	case !filepath.IsAbs(a.Directory) || filepath.Clean(a.Directory) != a.Directory || filepath.Base(a.Directory) != a.ID:
		return fmt.Errorf("its directory %q is none of ours", a.Directory)
	case a.UID < 0 || a.UID >= math.MaxUint32 || a.GID < pod.UnknownGroup || a.GID >= math.MaxUint32:
		return fmt.Errorf("user %d or group %d is none", a.UID, a.GID)
	}
	for _, device := range a.Devices {
		if n, ok := deviceNumber(device); !ok || n >= MostDevices {
			return fmt.Errorf("device %q is none of ours", device)
		}
	}
	return nil
}

// adopt takes an allocation over that an earlier run made. Of two that have the same device the younger keeps it, for
// kubelet gave it the device later; a number of a socket that is taken is replaced.
func (m *Manager) adopt(a *allocation) {
	own := *a
	for _, other := range m.holders(own.Devices) {
		older, younger := other, &own
		if own.Created.Before(other.Created) {
			older, younger = &own, other
		}
		m.config.Log.Error("two allocations have the same device, the younger keeps it", "allocation", younger.ID, "other", older.ID)
		left := *older
		left.Devices = slices.DeleteFunc(slices.Clone(older.Devices), func(d string) bool { return slices.Contains(younger.Devices, d) })
		if older == &own {
			own = left
			continue
		}
		m.swap(left.ID, &left)
		m.markUnsaved(left.ID)
	}
	taken := func(other *allocation) bool { return other.Socket == own.Socket }
	if own.Socket == 0 || slices.ContainsFunc(m.inOrder(), taken) {
		own.Socket = m.freeSocket()
		m.markUnsaved(own.ID)
	}
	m.swap(own.ID, &own)
}

func (m *Manager) markUnsaved(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsaved[id] = true
}
