package linux

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

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
