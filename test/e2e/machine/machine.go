// Package machine plays computers: namespaces with a disk, a network card on a common bridge, and a power switch.
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

// patience is how long what a killed process held may take to go away.
const patience = 20 * time.Second

// Machine is a computer: its disk lasts until the run ends, all else until the power is cut.
type Machine struct {
	// Name is its host name.
	Name string
	// Addresses are those of its network card, IPv4 first.
	Addresses []netip.Addr

	lab  *Lab
	disk string

	mu   sync.Mutex
	init *exec.Cmd // nil: off
}

// On switches the machine on: it has namespaces, its disk and its network when this returns, and no programs yet.
func (m *Machine) On(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		return fmt.Errorf("switch %s on: it is on", m.Name)
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

// Cut cuts the power: every process of the machine dies at once, and what is not on its disk is gone.
// A machine that is off stays off.
func (m *Machine) Cut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return nil
	}
	if err := m.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cut the power of %s: %w", m.Name, err)
	}
	_ = m.init.Wait() // it was killed, so that is its error
	m.init = nil
	if err := m.unplug(); err != nil {
		return fmt.Errorf("cut the power of %s: %w", m.Name, err)
	}
	if err := stage.RemoveCgroups(m.cgroups(), patience); err != nil {
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

// Run runs a program on the machine and returns what it wrote; the error holds what it complained of.
func (m *Machine) Run(ctx context.Context, path string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Env = m.lab.config.Env
	var out, complaints limited
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := m.Start(cmd); err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", filepath.Base(path), m.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("run %s on %s: %w: %s", filepath.Base(path), m.Name, err, complaints.Bytes())
	}
	return out.Bytes(), nil
}

// killing kills processes; one that is gone already is no error.
const killing = `for p; do kill -KILL "$p" 2>/dev/null || [ ! -d "/proc/$p" ] || exit 1; done`

// Kill kills processes of the machine by their ids there. Only a process of the machine can: a thread that has entered it
// (see Do) sees these ids, and sends signals by those of where it comes from.
func (m *Machine) Kill(ctx context.Context, pids ...int) error {
	arguments := []string{"-c", killing, "sh"}
	for _, pid := range pids {
		arguments = append(arguments, strconv.Itoa(pid))
	}
	_, err := m.Run(ctx, "/bin/sh", arguments...)
	return err
}

// Service is a daemon of the machine, not yet started. It ends with the machine, and does not start with it.
func (m *Machine) Service(name, path string, arguments ...string) *service.Service {
	return service.New(service.Daemon{
		Name: name + " on " + m.Name, Path: path, Args: arguments, Env: m.lab.config.Env,
		Log: m.log(name), Start: m.Start,
	})
}

func (m *Machine) log(name string) string {
	return filepath.Join(m.lab.config.Logs, name+"-"+m.Name+".log")
}

// Write writes a file on the machine, by rename, so that no watcher reads half of it.
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
