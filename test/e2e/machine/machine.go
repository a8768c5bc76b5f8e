// Package machine simulates computers: namespaces with a disk, a network card on a common bridge, and a power switch.
package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/weftnet/weft/test/e2e/service"
	"github.com/weftnet/weft/test/e2e/stage"
)

// timeout is the timeout for the resources of a killed process.
const timeout = 20 * time.Second

// Machine is a computer: its disk lasts until the run ends, everything else until the power is cut.
type Machine struct {
	// Name is the host name.
	Name string
	// Addresses are the addresses of its network card, IPv4 first.
	Addresses []netip.Addr

	lab  *Lab
	disk string

	mu   sync.Mutex
	init *exec.Cmd // nil = off
}

// On switches the machine on: it returns when namespaces, disk and network are set up; no programs run yet.
func (m *Machine) On(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		return fmt.Errorf("switch %s on: it is already on", m.Name)
	}
	if err := m.makeCgroups(); err != nil {
		return fmt.Errorf("switch %s on: %w", m.Name, err)
	}
	init, err := m.boot(ctx)
	if err != nil {
		return fmt.Errorf("switch %s on: %w", m.Name, errors.Join(err, m.lastWords()))
	}
	m.init = init
	if err := m.plugInLocked(); err != nil {
		return fmt.Errorf("switch %s on: %w", m.Name, err)
	}
	return nil
}

// Cut cuts the power: every process of the machine dies at once, and everything outside of its disk is lost. It does
// nothing on a machine that is off.
func (m *Machine) Cut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return nil
	}
	if err := m.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cut the power of %s: %w", m.Name, err)
	}
	_ = m.init.Wait() // the error is the kill
	m.init = nil
	if err := m.unplug(); err != nil {
		return fmt.Errorf("cut the power of %s: %w", m.Name, err)
	}
	if err := stage.RemoveCgroups(m.cgroups(), timeout); err != nil {
		return fmt.Errorf("cut the power of %s: %w", m.Name, err)
	}
	return nil
}

// Running reports whether the machine is on.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.init != nil
}

// Run runs a program on the machine and returns its stdout; the error includes its stderr.
func (m *Machine) Run(ctx context.Context, path string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Env = m.lab.config.Env
	var out, complaints limited
	cmd.Stdout = &out
	cmd.Stderr = &complaints
	if err := m.Start(cmd); err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", filepath.Base(path), m.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("run %s on %s: %w: %s", filepath.Base(path), m.Name, err, complaints.Bytes())
	}
	return out.Bytes(), nil
}

// killing kills processes; a missing process is no error.
const killing = `for p; do kill -KILL "$p" 2>/dev/null || [ ! -d "/proc/$p" ] || exit 1; done`

// Kill kills processes of the machine by their ids there. A process of the machine has to do that: a thread in its
// namespaces (see Do) still uses the process ids of its own PID namespace.
func (m *Machine) Kill(ctx context.Context, pids ...int) error {
	arguments := []string{"-c", killing, "sh"}
	for _, pid := range pids {
		arguments = append(arguments, strconv.Itoa(pid))
	}
	_, err := m.Run(ctx, "/bin/sh", arguments...)
	return err
}

// Service returns a daemon of the machine, not yet started. It ends with the machine, and does not start with it.
func (m *Machine) Service(name, path string, arguments ...string) *service.Service {
	return service.New(service.Daemon{
		Name: name + " on " + m.Name, Path: path, Args: arguments, Env: m.lab.config.Env,
		Log: m.log(name), Start: m.Start,
	})
}

func (m *Machine) log(name string) string {
	return filepath.Join(m.lab.config.Logs, name+"-"+m.Name+".log")
}

// Write writes a file on the machine by a rename, so that no watcher reads a partial file.
func (m *Machine) Write(path string, content []byte, mode os.FileMode) error {
	return m.Do(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write %s on %s: %w", path, m.Name, err)
		}
		unfinished := filepath.Join(filepath.Dir(path), ".unfinished")
		if err := os.WriteFile(unfinished, content, mode); err != nil {
			return fmt.Errorf("write %s on %s: %w", path, m.Name, err)
		}
		if err := os.Rename(unfinished, path); err != nil {
			return fmt.Errorf("write %s on %s: %w", path, m.Name, err)
		}
		return nil
	})
}
