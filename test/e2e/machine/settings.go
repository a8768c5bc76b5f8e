package machine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bootID is the setting that changes with each boot.
const bootID = "kernel/random/boot_id"

// feigned are settings of the whole host that kubelet writes unless they have these values. The machine sees files with
// the values, and the host's settings do not change.
func feigned() map[string]string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
		bootID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
	}
}

// strict are the strictest settings of distributions: reverse path filtering, and no forwarding.
var strict = []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter"}

// writeSettings sets the machine up as a computer that has just booted.
func writeSettings() error {
	for name, value := range feigned() {
		if err := feign(name, value); err != nil {
			return fmt.Errorf("feign %s: %w", name, err)
		}
	}
	for _, name := range strict {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte("1"), 0o644); err != nil {
			return fmt.Errorf("set reverse path filtering: %w", err)
		}
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	return nil
}

// feign mounts a file over a setting.
func feign(name, value string) error {
	file := filepath.Join("/run/feigned", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // not every kernel has every setting
	}
	return err
}

// BootID returns the machine's boot ID. A container with its own /proc sees the host's instead.
func (m *Machine) BootID() (id string, err error) {
	err = m.Do(func() error {
		content, err := os.ReadFile(filepath.Join("/proc/sys", bootID))
		id = strings.TrimSpace(string(content))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the boot of %s: %w", m.Name, err)
	}
	return id, nil
}
