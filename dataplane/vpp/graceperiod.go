package vpp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// RCUExpedited is the kernel's setting by which RCU grace periods are expedited (Documentation/RCU in the kernel's sources).
const RCUExpedited = "/sys/kernel/rcu_expedited"

// GracePeriods expedites the kernel's RCU grace periods while the dataplane creates or deletes interfaces of type af_packet. The kernel
// waits for several of them, of some 10 ms each, whenever a packet socket is bound, gets rings or is closed, one interface after
// the other. The price is a short interrupt of each processor that executes kernel code. A kernel that was started with
// rcupdate.rcu_normal=1, as real-time kernels are, ignores the setting.
type GracePeriods struct {
	setting string // file
	marker  string // file that exists while the setting is ours

	mu    sync.Mutex
	users int
	ours  bool
}

// NewGracePeriods checks that the setting can be written, and takes it back if an agent that was killed left it. The marker is a
// file that only root can write.
func NewGracePeriods(setting, marker string) (*GracePeriods, error) {
	f, err := os.OpenFile(setting, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	g := &GracePeriods{setting: setting, marker: marker}
	return g, g.restoreLeft()
}

// RestoreGracePeriods takes the setting back if an agent that was killed left it, for one that does not use it.
func RestoreGracePeriods(setting, marker string) error {
	return (&GracePeriods{setting: setting, marker: marker}).restoreLeft()
}

func (g *GracePeriods) restoreLeft() error {
	if _, err := os.Stat(g.marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return g.restore()
}

// expedite returns the function that ends it. A setting that is on already stays as it is. With an error interfaces take longer.
func (g *GracePeriods) expedite() (end func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users++; g.users == 1 {
		err = g.set()
	}
	return g.end, err
}

func (g *GracePeriods) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 && g.ours {
		g.ours = g.restore() != nil // tried again with the next interface, and by the next agent
	}
}

func (g *GracePeriods) set() error {
	now, err := os.ReadFile(g.setting)
	if err != nil {
		return fmt.Errorf("expedite RCU grace periods: %w", err)
	}
	if strings.TrimSpace(string(now)) != "0" {
		return nil
	}
	if err := os.WriteFile(g.marker, nil, 0o600); err != nil {
		return fmt.Errorf("expedite RCU grace periods: %w", err)
	}
	if err := os.WriteFile(g.setting, []byte("1"), 0); err != nil {
		return errors.Join(fmt.Errorf("expedite RCU grace periods: %w", err), os.Remove(g.marker))
	}
	g.ours = true
	return nil
}

// restore is the inverse of set. It removes the marker last, so that an agent that is killed in between restores the setting again.
func (g *GracePeriods) restore() error {
	err := os.WriteFile(g.setting, []byte("0"), 0)
	if err == nil {
		err = os.Remove(g.marker)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end expedited RCU grace periods: %w", err)
	}
	return nil
}
