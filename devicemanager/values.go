package devicemanager

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// file is a value of an allocation.
type file struct {
	path  string
	value wire.File
}

// files are all that stands on the node for an allocation, in the order in which it is made. Who makes them for others
// to use sets owner and modes here: a directory that only root may enter, until it is known who has it; then its group,
// or, where that is unknown, everybody whose container sees it.
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
	for _, device := range a.Devices {
		info, err := deviceInfo(a)
		if err != nil {
			return nil, err
		}
		files = append(files, file{c.deviceInfoPath(device), wire.File{Type: wire.RegularFile, Mode: 0o644, Content: info}})
	}
	return files, nil
}

// deviceInfo is a device as the device information specification, 1.1.0, describes it to CNI plugins. The host makes
// the socket and the container connects: that is the role slave.
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

// Objects are the keys of all that stands on the node for an allocation; none if there is no such allocation.
func (m *Manager) Objects(allocation string) []string {
	a := m.find(allocation)
	if a == nil {
		return nil
	}
	files, err := m.config.files(a)
	if err != nil {
		return nil // it was made of the same
	}
	var keys []string
	for _, f := range files {
		keys = append(keys, wire.FileKey(f.path))
	}
	return keys
}

// want puts all values of an allocation.
func (m *Manager) want(a *allocation, txn *eventloop.Txn) error {
	files, err := m.config.files(a)
	if err != nil {
		return err
	}
	for _, f := range files {
		txn.Put(wire.FileKey(f.path), f.value)
	}
	return nil
}

// resync puts the values of all allocations, asking nobody, and saves those that the state file does not have.
func (m *Manager) resync(_ context.Context, txn *eventloop.Txn) error {
	all := m.inOrder()
	for _, a := range all {
		if err := m.want(a, txn); err != nil {
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
