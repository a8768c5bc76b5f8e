package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weftnet/weft/eventloop"
)

// ensure makes what stands on the node for the allocations again, should somebody have taken it away.
func (m *Manager) ensure(ctx context.Context, allocations []*allocation) error {
	lost := m.lost(append(allocations, m.forebears(allocations)...))
	if lost == "" {
		return nil
	}
	m.config.Log.Warn("directory of an allocation is lost, making it again", "directory", lost)
	err := m.prepare()
	if err == nil {
		_, err = m.config.Loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Downstream, Reason: "directory of an allocation is lost"})
	}
	if lost = m.lost(allocations); lost != "" {
		if err == nil {
			err = errors.New("it is gone again")
		}
		return fmt.Errorf("directory %s is lost and could not be made again: %w", lost, err)
	}
	return nil
}

// forebears are those whose devices the holders got, in the same pod.
func (m *Manager) forebears(holders []*allocation) []*allocation {
	var found []*allocation
	for _, a := range m.inOrder() {
		for _, heir := range holders {
			if a.heir == heir.ID {
				found = append(found, a)
			}
		}
	}
	return found
}

// lost names a directory that is not as it was left; "" = there is none.
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
