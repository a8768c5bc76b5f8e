package stage

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// nodeDirectories are directories of a node's programs; a run must not write there on the host.
var nodeDirectories = []string{
	"/etc/cni", "/etc/cni/net.d", "/etc/kubernetes", "/opt/cni", "/opt/cni/bin", "/run/containerd", "/run/netns",
	"/var/lib/cni",
	"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/weft", "/var/log/containers", "/var/log/pods", "/run/weft",
}

// nodeSettings are settings of the whole host that kubelet writes.
var nodeSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
	"net/netfilter/nf_conntrack_max",
}

// inventory lists what a run could change on a host, one line for each object.
type inventory map[string]bool

func takeInventory() (inventory, error) {
	all := inventory{}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		all["interface "+link.Name] = true
	}
	for _, dir := range nodeDirectories {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it is not there, so it holds nothing
		}
		all["directory "+dir] = true
		for _, entry := range entries {
			all["file "+filepath.Join(dir, entry.Name())] = true
		}
	}
	for _, setting := range nodeSettings {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", setting)); err == nil {
			all["setting "+setting+" = "+string(bytes.TrimSpace(value))] = true
		}
	}
	return all, nil
}

// compare returns an error for what the host has now and had not before, and for objects with the run's name. The run's
// directory may remain if its logs are kept.
func (i inventory) compare(s Stage, keep bool) error {
	now, err := takeInventory()
	if err != nil {
		return err
	}
	var left []string
	for object := range now {
		if !i[object] {
			left = append(left, object)
		}
	}
	for _, find := range []func() ([]string, error){s.processes, s.mounts} {
		found, err := find()
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	for _, cgroup := range s.cgroups() {
		left = append(left, "cgroup "+cgroup)
	}
	if _, err := os.Stat(s.Dir); err == nil && !keep {
		left = append(left, "directory "+s.Dir)
	}
	if len(left) > 0 {
		slices.Sort(left)
		return fmt.Errorf("the run left behind: %s", strings.Join(left, "; "))
	}
	return nil
}

// processes returns the processes that were started on the stage, identified by their environment.
func (s Stage) processes() ([]string, error) {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []string
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended, or is a kernel thread
		}
		if slices.Contains(strings.Split(string(environment), "\x00"), variable+"="+s.Dir) {
			found = append(found, "process "+filepath.Base(filepath.Dir(path)))
		}
	}
	return found, nil
}

// mounts returns the host's mounts in the run's directory.
func (s Stage) mounts() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], s.Dir) {
			found = append(found, "mount "+fields[4])
		}
	}
	return found, nil
}
