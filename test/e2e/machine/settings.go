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

// bootID is the setting by which programs notice that a machine has booted.
const bootID = "kernel/random/boot_id"

// feigned are settings of the whole computer: kubelet writes them unless they have these values. The machine sees files
// that have them, and the computer keeps its own.
func feigned() map[string]string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
		bootID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
	}
}

// strict are settings as distributions with the strictest defaults have them: whatever comes in by another way than an
// answer to it would leave is dropped. To forward packets is left to who needs it.
var strict = []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter"}

// writeSettings makes the machine a computer with a loopback interface that has just booted.
func writeSettings() error {
	for name, value := range feigned() {
		if err := feign(name, value); err != nil {
			return fmt.Errorf("feign %s: %w", name, err)
		}
	}
	for _, name := range strict {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte("1"), 0o644); err != nil {
			return fmt.Errorf("be strict about where packets come from: %w", err)
		}
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	return nil
}

// feign lays a file over a setting.
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

// BootID is the machine's boot, as its programs see it. A container with a /proc of its own sees the computer's instead.
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
