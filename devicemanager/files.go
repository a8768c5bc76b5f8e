package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/privatedir"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func secretPath(directory string) string { return directory + "/secret" }
func recordPath(directory string) string { return directory + ".json" }

// deviceInfoPath is the path of a device's file by the device information specification, 1.1.0, section 4.1.
func (c Config) deviceInfoPath(device string) string {
	name := strings.ReplaceAll(pod.Resource, "/", "-") + "-" + device + "-device.json"
	return filepath.Join(c.DeviceInfoDir, name)
}

// file is one desired file of an allocation.
type file struct {
	path  string
	value wire.File
}

// files returns the desired files of an allocation in the order of their creation. Before the grant only root may enter the
// directory. After it the pod's user and group may, or every user where the group is unknown.
func (c Config) files(a *allocation) ([]file, error) {
	directory := wire.File{Type: wire.Directory, Mode: 0o700}
	text := wire.File{Type: wire.RegularFile, Mode: 0o400, Secret: a.Secret, On: wire.FileKey(a.Directory)}
	if a.Granted {
		directory.UID, text.UID = a.UID, a.UID
		directory.Mode, text.Mode = 0o755, 0o444
	}
	if a.Granted && a.GID != pod.UnknownGroup {
		directory.GID, text.GID = a.GID, a.GID
		directory.Mode, text.Mode = fs.ModeSetgid|0o750, 0o440
	}
	record, err := json.Marshal(recordOf(a))
	if err != nil {
		return nil, fmt.Errorf("owner record of allocation %s: %w", a.ID, err)
	}
	files := []file{
		{a.Directory, directory},
		{secretPath(a.Directory), text},
		{recordPath(a.Directory), wire.File{Type: wire.RegularFile, Mode: 0o600, Content: string(record)}},
	}
	if a.Claim != nil {
		cdi, err := c.cdiFile(a)
		return append(files, cdi), err
	}
	if a.direct { // which of the devices is whose memif is unknown
		return files, nil
	}
	for _, device := range a.Devices {
		info, err := deviceInfo(a)
		if err != nil {
			return nil, err
		}
		files = append(files, file{c.deviceInfoPath(device), wire.File{Type: wire.RegularFile, Mode: 0o644, Content: info}})
	}
	return files, nil
}

// deviceInfo returns the content of a device information file, specification 1.1.0. The container's role is slave: the host
// creates the socket and the container connects.
func deviceInfo(a *allocation) (string, error) {
	type memif struct {
		Role string `json:"role"`
		Path string `json:"path"`
		Mode string `json:"mode"`
	}
	info, err := json.Marshal(struct {
		Type    string `json:"type"`
		Version string `json:"version"`
		Memif   memif  `json:"memif"`
	}{"memif", "1.1.0", memif{"slave", a.SocketPath(), pod.MemifEthernet}})
	if err != nil {
		return "", fmt.Errorf("device information of allocation %s: %w", a.ID, err)
	}
	return string(info), nil
}

// Objects returns the scheduler keys of an allocation's files, none for an unknown allocation.
func (m *Manager) Objects(allocation string) []string {
	a := m.find(allocation)
	if a == nil {
		return nil
	}
	files, err := m.config.files(a)
	if err != nil {
		return nil // cannot happen: the allocation was built from the same data
	}
	var keys []string
	for _, f := range files {
		keys = append(keys, wire.FileKey(f.path))
	}
	return keys
}

// putValues puts the desired files of an allocation.
func (m *Manager) putValues(a *allocation, txn *eventloop.Txn) error {
	files, err := m.config.files(a)
	if err != nil {
		return err
	}
	for _, f := range files {
		txn.Put(wire.FileKey(f.path), f.value)
	}
	return nil
}

// resync puts the files of all allocations and saves the allocations that differ from the state file.
func (m *Manager) resync(_ context.Context, txn *eventloop.Txn) error {
	all := m.inOrder()
	for _, a := range all {
		if err := m.putValues(a, txn); err != nil {
			return err
		}
		if m.isUnsaved(a.ID) {
			txn.Save(bucket, a.ID, a.saved())
		}
	}
	txn.OnCommit(func() { m.markSaved(all) })
	return nil
}

func (m *Manager) isUnsaved(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unsaved[id]
}

func (m *Manager) markSaved(all []*allocation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range all {
		delete(m.unsaved, a.ID)
	}
}

// prepare creates the shared directories: the parents of the allocations and the directory of device information. They are
// no scheduler objects, because the scheduler deletes a directory with its content, and third-party files may be in it.
func (m *Manager) prepare() error {
	if err := os.MkdirAll(m.config.DeviceInfoDir, 0o755); err != nil {
		return fmt.Errorf("directory of device information: %w", err)
	}
	if m.config.Claimable > 0 || len(m.Claims()) > 0 {
		if err := os.MkdirAll(m.config.CDIDir, 0o755); err != nil {
			return fmt.Errorf("directory of CDI files: %w", err)
		}
	}
	roots := []string{m.config.Root}
	for _, a := range m.inOrder() {
		roots = append(roots, filepath.Dir(a.Directory))
	}
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		if err := secureRoot(root); err != nil {
			return fmt.Errorf("directory of memifs: %w", err)
		}
	}
	return nil
}

// secureRoot creates a directory that only root may enter, or restricts an existing one that has no foreign files.
func secureRoot(root string) error {
	if err := refuseForeign(root); err != nil {
		return err
	}
	return privatedir.Make(root)
}

// refuseForeign rejects a directory that other users may enter and that has files that Weft did not make.
func refuseForeign(root string) error {
	info, err := os.Lstat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() || info.Mode().Perm() == 0o700:
		return nil // privatedir.Make decides
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ours := allocationOf(e); !ours {
			return fmt.Errorf("%s is open to other users (%s) and contains the foreign file %s: configure a directory that only Weft uses",
				root, info.Mode().Perm(), e.Name())
		}
	}
	return nil
}

// ensure recreates the files of the allocations if their directories are lost.
func (m *Manager) ensure(ctx context.Context, allocations []*allocation) error {
	lost := m.lost(append(allocations, m.predecessors(allocations)...))
	if lost == "" {
		return nil
	}
	m.config.Log.Warn("directory of an allocation is lost, recreating it", "directory", lost)
	err := m.prepare()
	if err == nil {
		_, err = m.config.Loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Downstream, Reason: "directory of an allocation is lost"})
	}
	if lost = m.lost(allocations); lost != "" {
		if err == nil {
			err = errors.New("it was removed again")
		}
		return fmt.Errorf("directory %s is lost and could not be recreated: %w", lost, err)
	}
	return nil
}

// predecessors returns the allocations of the same pod that had the holders' devices before.
func (m *Manager) predecessors(holders []*allocation) []*allocation {
	var found []*allocation
	for _, a := range m.inOrder() {
		for _, heir := range holders {
			if a.successor == heir.ID {
				found = append(found, a)
			}
		}
	}
	return found
}

// lost returns the first directory that is missing or has no secret, or "".
func (m *Manager) lost(allocations []*allocation) string {
	for _, a := range allocations {
		if info, err := os.Lstat(a.Directory); err != nil || !info.IsDir() {
			return a.Directory
		}
		if _, err := os.Lstat(secretPath(a.Directory)); errors.Is(err, fs.ErrNotExist) {
			return a.Directory
		}
	}
	return ""
}
