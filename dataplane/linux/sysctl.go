package linux

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func sysctlDescriptor(overfull *Overfull) kvscheduler.Descriptor[wire.Sysctl, netnsID] {
	d := onLink(kvscheduler.Follow, func(v wire.Sysctl) (on, namespace string) { return v.On, v.Namespace },
		namespaced[wire.Sysctl]{
			kind:   wire.KindSysctl,
			put:    writeSysctl,
			remove: func(*handle, wire.Sysctl) error { return nil }, // the setting ends with its link
			find:   readSysctl,
			link:   func(v wire.Sysctl) string { return linkOfSetting(v.Name) },

			needsIPv6: func(v wire.Sysctl) bool {
				return linkOfSetting(v.Name) != "" && strings.HasPrefix(v.Name, "net/ipv6/")
			},
			overfull: overfull,
		})
	d.Validate = validateSysctl
	d.Recreate = func(have, want wire.Sysctl) bool { return have.Namespace != want.Namespace }
	return d
}

func validateSysctl(name string, v wire.Sysctl) error {
	switch {
	case !strings.HasPrefix(v.Name, "net/") || path.Clean(v.Name) != v.Name:
		return fmt.Errorf("setting %q is not a clean path below net", v.Name)
	case v.Value == "" || v.Value != strings.Join(strings.Fields(v.Value), " "):
		return fmt.Errorf("value %q of setting %s is empty or has extra white space", v.Value, v.Name)
	}
	if derived := parseRef(wire.SysctlKey(v.On, v.Name)).Name; derived != name {
		return fmt.Errorf("name %s does not match the value, expected %s", name, derived)
	}
	_, err := kvscheduler.ParseRef(v.On)
	return err
}

// linkOfSetting returns the link of a setting such as net/ipv6/conf/eth0/accept_ra; "" for a setting of all links.
func linkOfSetting(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) != 5 || parts[3] == "all" || parts[3] == "default" {
		return ""
	}
	return parts[3]
}

// sysctlFile returns the file of a setting. Below net, each thread sees the settings of its namespace.
func sysctlFile(v wire.Sysctl) string { return "/proc/sys/" + v.Name }

// Settings that change other settings of every link. With IPv6 forwarding, a link accepts router advertisements only if
// accept_ra is 2.
const (
	forwarding6 = "net/ipv6/conf/all/forwarding"
	forwarding4 = "net/ipv4/ip_forward"
)

// isolatedLinks lists the forwarding settings of the dataplane's links (see isolation), which have to stay 0 when the
// forwarding of all links changes to value.
func isolatedLinks(value string) (files []string) {
	const conf = "/proc/sys/net/ipv4/conf/"
	links, err := os.ReadDir(conf)
	if err != nil || settingIs("/proc/sys/"+forwarding4, value) {
		return nil
	}
	for _, l := range links {
		at := conf + l.Name()
		if settingIs(at+"/forwarding", "0") && settingIs(at+"/rp_filter", "1") &&
			settingIs(at+"/drop_unicast_in_l2_multicast", "1") {
			files = append(files, at+"/forwarding")
		}
	}
	return files
}

func writeSysctl(_ *handle, v wire.Sysctl) error {
	if v.Name == forwarding6 && v.Value != "0" {
		if err := keepAdvertisements("/proc/sys/net/ipv6/conf"); err != nil {
			return refused(fmt.Errorf("set %s: keep router advertisements: %w", v.Name, err))
		}
	}
	var isolated []string
	if v.Name == forwarding4 {
		isolated = isolatedLinks(v.Value)
	}
	err := os.WriteFile(sysctlFile(v), []byte(v.Value), 0)
	for _, file := range isolated {
		// links may be deleted meanwhile
		if failed := os.WriteFile(file, []byte("0"), 0); failed != nil && !errors.Is(failed, os.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return permanent(fmt.Errorf("set %s to %q: %w", v.Name, v.Value, err))
	}
	if err != nil {
		return refused(fmt.Errorf("set %s to %q: %w", v.Name, v.Value, err))
	}
	return nil
}

// keepAdvertisements lets links that accept router advertisements accept them with forwarding, too: the node may have
// its addresses and its default route from them.
func keepAdvertisements(dir string) error {
	links, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, l := range links {
		at := path.Join(dir, l.Name())
		if l.Name() == "all" || l.Name() == "default" || !settingIs(at+"/accept_ra", "1") ||
			!settingIs(at+"/forwarding", "0") {
			continue
		}
		// links may be deleted meanwhile
		if err := os.WriteFile(at+"/accept_ra", []byte("2"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func settingIs(file, value string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(text)) == value
}

func readSysctl(_ *handle, v wire.Sysctl) (wire.Sysctl, bool, error) {
	text, err := os.ReadFile(sysctlFile(v))
	if err != nil {
		return v, false, err
	}
	v.Value = strings.Join(strings.Fields(string(text)), " ")
	return v, true, nil
}

func hardeningDescriptor(overfull *Overfull) kvscheduler.Descriptor[wire.Hardening, netnsID] {
	d := onLink(kvscheduler.Follow, func(v wire.Hardening) (on, namespace string) { return v.On, v.Namespace },
		namespaced[wire.Hardening]{
			kind:   wire.KindHardening,
			put:    putHardening,
			remove: func(*handle, wire.Hardening) error { return nil }, // the settings end with the link
			find:   findHardening,
			link:   func(v wire.Hardening) string { return v.Link },

			overfull: overfull,
		})
	d.Validate = validateHardening
	d.Recreate = always
	return d
}

func validateHardening(name string, v wire.Hardening) error {
	on, err := kvscheduler.ParseRef(v.On)
	if err == nil && name != on.String() {
		err = fmt.Errorf("name %s is not the key of the link's object, %s", name, v.On)
	}
	return errors.Join(err, validateLink(v.Link))
}

func putHardening(h *handle, v wire.Hardening) error {
	l, err := h.link(v.Link)
	if err != nil {
		return refused(err)
	}
	return harden(l, v.Namespace)
}

// findHardening finds only links that have all settings.
func findHardening(h *handle, v wire.Hardening) (wire.Hardening, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	return v, areSet(hardeningsOf(l, v.Namespace)), nil
}

// hardenings are the settings, set to 0, that make the kernel of a Linux end, mostly a pod's, ignore addresses and
// routes from neighbours on the link.
var hardenings = []string{
	"ipv6/conf/%s/accept_ra",
	"ipv6/conf/%s/autoconf",
	"ipv6/conf/%s/accept_redirects",
	"ipv4/conf/%s/accept_redirects",
}

// podRedirects is the setting of a whole namespace: without forwarding, the kernel accepts an IPv4 redirect if the link
// or all links accept them. secure_redirects stays 1, the stricter value.
const podRedirects = "ipv4/conf/all/accept_redirects"

// hardeningsOf returns the settings for a link. Weft does not change settings of all links in the node's namespace.
// With forwarding, the kernel accepts a redirect there only if both settings allow it.
func hardeningsOf(l netlink.Link, namespace string) (list []setting) {
	for _, s := range hardenings {
		list = append(list, setting{fmt.Sprintf(s, l.Attrs().Name), "0"})
	}
	if namespace != "" {
		list = append(list, setting{podRedirects, "0"})
	}
	return list
}

// harden makes a link ignore router advertisements and redirects. It runs before the link is up, since the kernel keeps
// learned routes and addresses.
func harden(l netlink.Link, namespace string) error {
	if err := apply(hardeningsOf(l, namespace)); err != nil {
		return refused(fmt.Errorf("harden link %s: %w", l.Attrs().Name, err))
	}
	return nil
}

// setting is a file below /proc/sys/net and its value.
type setting struct{ file, value string }

// apply writes the settings that differ. It skips settings that do not exist, for example without IPv6.
func apply(list []setting) error {
	for _, s := range list {
		if s.isSet() {
			continue
		}
		if err := os.WriteFile("/proc/sys/net/"+s.file, []byte(s.value), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func areSet(list []setting) bool {
	return !slices.ContainsFunc(list, func(s setting) bool { return !s.isSet() })
}

// isSet reports whether the setting has its value. A missing setting counts as set.
func (s setting) isSet() bool {
	current, err := os.ReadFile("/proc/sys/net/" + s.file)
	return errors.Is(err, os.ErrNotExist) || err == nil && string(current) == s.value+"\n"
}
