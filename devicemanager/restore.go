package devicemanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// Restore adds the allocations of the state file, and the attachments that use them. Call it before the loop runs; it may
// be called again with more. It repairs and logs contradictions.
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
				m.use(in.Memif.Allocation, a.Key, a.Pod)
			}
		}
	}
}

// adopt adds an allocation of an earlier run. If two allocations have the same device, the younger one keeps it: kubelet
// gave it the device later. A duplicate socket number is replaced.
func (m *Manager) adopt(a *allocation) {
	own := *a
	for _, other := range m.holders(own.Devices) {
		older, younger := other, &own
		if own.Created.Before(other.Created) {
			older, younger = &own, other
		}
		m.config.Log.Error("two allocations have the same device, the younger keeps it", "allocation", younger.ID, "other", older.ID)
		left := *older
		left.Devices = without(older.Devices, younger.Devices)
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

// Bounds of an owner record, in bytes. A record with all devices is smaller. That of a claim has the UIDs of all its pods, so a claim with a
// larger one is refused before it is prepared. The difference is for what a grant adds: names of the pod and its sandbox.
const (
	maxRecord      = 64 << 10
	maxClaimRecord = 48 << 10
)

// Rebuild creates the parent directories of known allocations and finds allocations that the state file does not have:
// the file was lost, or an agent ended before it saved one. Call it at each start, after Restore and before the first
// resync, which saves the found allocations. A directory without a trusted record becomes an allocation without devices,
// which the collector releases later.
func (m *Manager) Rebuild() error {
	if err := m.prepareNode(); err != nil { // not fatal: the agent has other work, and Allocate fails with the same error
		m.config.Log.Error("devices cannot be allocated", "err", err)
	}
	entries, err := os.ReadDir(m.config.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find allocations: %w", err)
	}
	for _, id := range allocationIDs(entries) {
		if m.find(id) != nil {
			continue
		}
		a, err := m.readAllocation(id)
		if err != nil {
			m.config.Log.Warn("directory of an unknown allocation, its devices are not allocated", "allocation", id, "err", err)
			if a, err = m.newAllocation(id, nil); err != nil {
				return err
			}
		} else {
			m.config.Log.Warn("allocation rebuilt from its owner record", "allocation", id, "devices", strings.Join(a.Devices, " "))
		}
		m.adopt(a)
		m.markUnsaved(id)
	}
	return nil
}

// prepareNode calls prepare if there are allocations, or a kubelet that may request some.
func (m *Manager) prepareNode() error {
	_, err := os.Stat(m.config.PluginDir)
	if err != nil && len(m.inOrder()) == 0 {
		return nil
	}
	return m.prepare()
}

// allocationIDs returns the ids of the allocations that have a directory or a record.
func allocationIDs(entries []fs.DirEntry) []string {
	var ids []string
	for _, e := range entries {
		if id, ours := allocationOf(e); ours {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// allocationOf returns the id of the allocation if e is its directory or record.
func allocationOf(e fs.DirEntry) (id string, ours bool) {
	id, isRecord := strings.CutSuffix(e.Name(), ".json")
	return id, isRandomText(id, idLength) && e.IsDir() != isRecord
}

// readAllocation reads an allocation from its record and its secret.
func (m *Manager) readAllocation(id string) (*allocation, error) {
	directory := filepath.Join(m.config.Root, id)
	raw, err := readOwned(recordPath(directory), os.Geteuid(), 0o077)
	if err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	a, err := parseRecord(raw, directory)
	if err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	if info, err := os.Lstat(directory); err != nil || !info.IsDir() {
		return nil, errors.New("its directory is lost, including the secret")
	}
	text, err := readOwned(secretPath(directory), a.UID, 0o022)
	if errors.Is(err, errForeign) {
		text, err = readOwned(secretPath(directory), os.Geteuid(), 0o022)
	}
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	a.Secret = secret.Text(text)
	return a, a.validate()
}

// parseRecord reads an owner record, which holds no secret.
func parseRecord(raw []byte, directory string) (*allocation, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if r.Allocation != filepath.Base(directory) {
		return nil, fmt.Errorf("it belongs to allocation %q", r.Allocation)
	}
	return r.allocation(r.Allocation, directory), nil
}

var errForeign = errors.New("another user could have written it")

// readOwned reads a regular file that belongs to uid and has none of the forbidden permissions. It follows no symlink.
func readOwned(path string, uid int, forbidden fs.FileMode) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || int(owner.Uid) != uid || info.Mode().Perm()&forbidden != 0 {
		return nil, fmt.Errorf("%s: %w", path, errForeign)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(raw) > maxRecord {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxRecord)
	}
	return raw, err
}
