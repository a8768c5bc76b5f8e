package linux

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func sysctlDescriptor() kvscheduler.Descriptor[wire.Sysctl, Place] {
	return kvscheduler.Descriptor[wire.Sysctl, Place]{
		Name: wire.KindSysctl, Lane: Lane,
		Equal:    func(want, have wire.Sysctl) bool { return want == have },
		Validate: validateSysctl,
		Deps: func(_ string, v wire.Sysctl) []kvscheduler.Dep {
			return dependencies(refOf(v.On), kvscheduler.Follow, v.Namespace)
		},
		Recreate: func(have, want wire.Sysctl) bool { return have.Namespace != want.Namespace },
		After:    []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.Sysctl]{
			kind:      wire.KindSysctl,
			namespace: func(v wire.Sysctl) string { return v.Namespace },
			put:       writeSysctl,
			remove:    func(*handle, wire.Sysctl) error { return nil }, // it goes with its link
			find:      readSysctl,
		},
	}
}

func validateSysctl(name string, v wire.Sysctl) error {
	switch {
	case !strings.HasPrefix(v.Name, "net/") || path.Clean(v.Name) != v.Name:
		return fmt.Errorf("setting %q is not below net", v.Name)
	case v.Value == "" || v.Value != strings.Join(strings.Fields(v.Value), " "):
		return fmt.Errorf("value %q is not made of words", v.Value)
	}
	if r, _ := kvscheduler.ParseRef(wire.SysctlKey(v.On, v.Name)); r.Name != name {
		return fmt.Errorf("the value makes the name %s", r.Name)
	}
	_, err := kvscheduler.ParseRef(v.On)
	return err
}

// sysctlFile names the setting. Below net the kernel shows each thread the settings of its own namespace.
func sysctlFile(v wire.Sysctl) string { return "/proc/sys/" + v.Name }

// forwarding6 makes the whole node a router. Where the kernel is one it no longer listens to other routers, unless told so.
const forwarding6 = "net/ipv6/conf/all/forwarding"

// forwarding4 turns forwarding on or off for every link.
const forwarding4 = "net/ipv4/ip_forward"

// sealedLinks are the forwarding settings of the links that belong to the dataplane (see seals), which stay as they are when
// forwarding becomes value for all links.
func sealedLinks(value string) (files []string) {
	const conf = "/proc/sys/net/ipv4/conf/"
	links, err := os.ReadDir(conf)
	if err != nil || says("/proc/sys/"+forwarding4, value) {
		return nil
	}
	for _, l := range links {
		at := conf + l.Name()
		if says(at+"/forwarding", "0") && says(at+"/rp_filter", "1") && says(at+"/drop_unicast_in_l2_multicast", "1") {
			files = append(files, at+"/forwarding")
		}
	}
	return files
}

func writeSysctl(_ *handle, _ string, v wire.Sysctl) error {
	if v.Name == forwarding6 && v.Value != "0" {
		if err := keepAdvertisements("/proc/sys/net/ipv6/conf"); err != nil {
			return refused(fmt.Errorf("before %s is set: %w", v.Name, err))
		}
	}
	var sealed []string
	if v.Name == forwarding4 {
		sealed = sealedLinks(v.Value)
	}
	err := os.WriteFile(sysctlFile(v), []byte(v.Value), 0)
	for _, file := range sealed {
		if failed := os.WriteFile(file, []byte("0"), 0); failed != nil && !errors.Is(failed, os.ErrNotExist) { // links come and go
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

// keepAdvertisements lets links that follow router advertisements do so on a router too: the node may have its addresses
// and its default route from them.
func keepAdvertisements(dir string) error {
	links, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, l := range links {
		at := path.Join(dir, l.Name())
		if l.Name() == "all" || l.Name() == "default" || !says(at+"/accept_ra", "1") || !says(at+"/forwarding", "0") {
			continue
		}
		if err := os.WriteFile(at+"/accept_ra", []byte("2"), 0); err != nil && !errors.Is(err, os.ErrNotExist) { // links come and go
			return err
		}
	}
	return nil
}

func says(file, value string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(text)) == value
}

func readSysctl(_ *handle, _ string, v wire.Sysctl) (wire.Sysctl, bool, error) {
	text, err := os.ReadFile(sysctlFile(v))
	if err != nil {
		return v, false, err
	}
	v.Value = strings.Join(strings.Fields(string(text)), " ")
	return v, true, nil
}

func hardeningDescriptor() kvscheduler.Descriptor[wire.Hardening, Place] {
	return kvscheduler.Descriptor[wire.Hardening, Place]{
		Name: wire.KindHardening, Lane: Lane,
		Equal:    func(want, have wire.Hardening) bool { return want == have },
		Validate: validateHardening,
		Deps: func(_ string, v wire.Hardening) []kvscheduler.Dep {
			return dependencies(refOf(v.On), kvscheduler.Follow, v.Namespace)
		},
		Recreate: func(have, want wire.Hardening) bool { return have != want },
		After:    []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.Hardening]{
			kind:      wire.KindHardening,
			namespace: func(v wire.Hardening) string { return v.Namespace },
			put:       putHardening,
			remove:    func(*handle, wire.Hardening) error { return nil }, // it goes with its link
			find:      findHardening,
		},
	}
}

func validateHardening(name string, v wire.Hardening) error {
	on, err := kvscheduler.ParseRef(v.On)
	if err == nil && name != on.String() {
		err = fmt.Errorf("the name is the link's object, %s", v.On)
	}
	return errors.Join(err, validateLink(v.Link))
}

func putHardening(h *handle, _ string, v wire.Hardening) error {
	l, err := h.link(v.Link)
	if err != nil {
		return refused(err)
	}
	return harden(l, v.Namespace)
}

// findHardening takes a link with a single setting of another value for one that is not hardened.
func findHardening(h *handle, _ string, v wire.Hardening) (wire.Hardening, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	return v, isHardened(l, v.Namespace), nil
}

// hardenings are the settings that keep the kernel of a Linux end, most often a pod's, from what a neighbour on the link says about
// addresses and routes: all of them are Weft's to set, or the pod's own.
var hardenings = []string{
	"ipv6/conf/%s/accept_ra",
	"ipv6/conf/%s/autoconf",
	"ipv6/conf/%s/accept_redirects",
	"ipv4/conf/%s/accept_redirects",
}

// podRedirects is the setting of a whole namespace: a kernel that is no router accepts a redirect of IPv4 if either the link or
// all links do. secure_redirects stays 1, which is the stricter value, should a pod accept redirects after all.
const podRedirects = "ipv4/conf/all/accept_redirects"

// hardeningsOf are the files for a link. In the node's own namespace the settings of all links are not Weft's; there the kernel is
// a router, which accepts a redirect only if both settings say so.
func hardeningsOf(l netlink.Link, namespace string) (files []string) {
	for _, s := range hardenings {
		files = append(files, "/proc/sys/net/"+fmt.Sprintf(s, l.Attrs().Name))
	}
	if namespace != "" {
		files = append(files, "/proc/sys/net/"+podRedirects)
	}
	return files
}

// harden makes a link ignore router advertisements and redirects. It runs where the link is, before the link is up: what a kernel
// has learned it keeps. A setting that the kernel does not have, as without IPv6, need not be set.
func harden(l netlink.Link, namespace string) error {
	for _, file := range hardeningsOf(l, namespace) {
		if isSet(file, "0") {
			continue
		}
		if err := os.WriteFile(file, []byte("0"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return refused(fmt.Errorf("keep %s from following its neighbours: %w", l.Attrs().Name, err))
		}
	}
	return nil
}

func isHardened(l netlink.Link, namespace string) bool {
	for _, file := range hardeningsOf(l, namespace) {
		if !isSet(file, "0") {
			return false
		}
	}
	return true
}
