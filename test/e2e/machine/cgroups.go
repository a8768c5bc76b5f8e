package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const cgroupMount = "/sys/fs/cgroup"

// Cgroup is the machine's cgroup in each hierarchy, as kubelet names it; all its pods are below it.
func (m *Machine) Cgroup() string { return filepath.Join(m.lab.config.Cgroup, m.Name) }

// hierarchies are the mounted cgroup hierarchies: one for version 2, several for version 1.
func hierarchies() []string {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && strings.HasPrefix(fields[1], cgroupMount) && strings.HasPrefix(fields[2], "cgroup") {
			all = append(all, fields[1])
		}
	}
	return all
}

// cgroups are the directories of the machine's cgroup.
func (m *Machine) cgroups() []string {
	var all []string
	for _, hierarchy := range hierarchies() {
		all = append(all, filepath.Join(hierarchy, m.Cgroup()))
	}
	return all
}

// makeCgroups makes the machine's cgroup and the lab's, so that processes can join.
func (m *Machine) makeCgroups() error {
	all := hierarchies()
	if len(all) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s", cgroupMount)
	}
	for _, hierarchy := range all {
		for _, cgroup := range []string{m.lab.config.Cgroup, m.Cgroup()} {
			if err := makeCgroup(filepath.Join(hierarchy, cgroup)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeCgroup makes a cgroup. In version 1 processes cannot join before the cpuset has processors and memory nodes; in
// version 2 the parent has to enable controllers.
func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil || len(bytes.TrimSpace(parent)) == 0 {
			continue // no cpuset hierarchy of version 1
		}
		if err := os.WriteFile(filepath.Join(dir, file), parent, 0o644); err != nil {
			return fmt.Errorf("set %s: %w", file, err)
		}
	}
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return fmt.Errorf("read the controllers: %w", err)
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller),
			0o644); err != nil {
			return fmt.Errorf("enable controller %s: %w", controller, err)
		}
	}
	return nil
}
