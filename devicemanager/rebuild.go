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

// mostRecord bounds an owner record, in bytes: more than one of all devices has.
const mostRecord = 64 << 10

// Rebuild makes the directories that known allocations stand in, and finds allocations that the state file does not know:
// it was lost, or an agent ended between making one and saving it. It is to be called at each start, after Restore and
// before the first resync, which saves what was found. Directories that no trusted record explains get no devices; the
// collection takes them away in its time.
func (m *Manager) Rebuild() error {
	if err := m.prepareNode(); err != nil { // an agent that has other work must not fail of it; an Allocate will say it again
		m.config.Log.Error("devices cannot be given to pods", "err", err)
	}
	entries, err := os.ReadDir(m.config.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for allocations: %w", err)
	}
	for _, id := range allocationIDs(entries) {
		if m.find(id) != nil {
			continue
		}
		a, err := m.readAllocation(id)
		if err != nil {
			m.config.Log.Warn("directory of an unknown allocation; its devices are not allocated", "allocation", id, "err", err)
			if a, err = m.stray(id); err != nil {
				return err
			}
		} else {
			m.config.Log.Warn("allocation made anew from its owner record", "allocation", id, "devices", strings.Join(a.Devices, " "))
		}
		m.adopt(a)
		m.markUnsaved(id)
	}
	return nil
}

// prepareNode prepares for what is known and to come. Where there is no kubelet nothing will come, and nothing is made.
func (m *Manager) prepareNode() error {
	_, err := os.Stat(m.config.PluginDir)
	if err != nil && len(m.inOrder()) == 0 {
		return nil
	}
	return m.prepare()
}

// allocationIDs are the allocations that have a directory or a record.
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

// allocationOf is the allocation whose directory or record stands there.
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
		return nil, errors.New("its directory is lost, and the secret with it")
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
		return nil, fmt.Errorf("it is that of allocation %q", r.Allocation)
	}
	return r.allocation(r.Allocation, directory), nil
}

// stray is an allocation that nobody has, for a directory that is there.
func (m *Manager) stray(id string) (*allocation, error) {
	text, err := m.newSecret()
	if err != nil {
		return nil, err
	}
	return &allocation{Allocation: pod.Allocation{
		ID: id, Socket: m.freeSocket(), Directory: filepath.Join(m.config.Root, id),
		Created: m.config.Now().UTC().Round(0), Secret: text, GID: pod.UnknownGroup,
	}}, nil
}

var errForeign = errors.New("another user could have written it")

// readOwned reads a regular file of uid that has none of the forbidden permissions; it follows no link.
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
	return io.ReadAll(io.LimitReader(f, mostRecord))
}
