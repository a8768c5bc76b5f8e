// Package confine takes from a running process the privileges that it does not need: capabilities, system calls, and the way to new
// privileges (no_new_privs). The kernel gives none of them back, and child processes inherit the confinement.
package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Dataplane confines the calling process as weft-vswitch: all its threads, and those to come. It keeps the capabilities of
// DataplaneCapabilities and loses the system calls of DeniedSyscalls. An error names the steps that failed; the others are done.
func Dataplane() error {
	return errors.Join(
		dropCapabilities(DataplaneCapabilities),
		forbidNewPrivileges(),
		loadFilter(denied()),
	)
}

// Broker confines the calling process as the memif broker: it has no capabilities, only the system calls of BrokerSyscalls, no more
// than BrokerDescriptors descriptors, and neither core dumps nor other access to its memory by processes of its user. An error names
// the steps that failed; the others are done.
func Broker() error {
	return errors.Join(
		limit(unix.RLIMIT_CORE, 0),
		limit(unix.RLIMIT_NOFILE, BrokerDescriptors),
		undumpable(),
		dropCapabilities(nil),
		forbidNewPrivileges(),
		loadFilter(allowed()),
	)
}

// BrokerDescriptors bounds the descriptors of a broker process. An established connection has two, a client that is pending or being
// closed has three at most, and 16 of these are served for each container.
const BrokerDescriptors = 16384

// limit lowers a resource limit. One that is lower already stays.
func limit(resource int, most uint64) error {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	if err == nil {
		err = unix.Setrlimit(resource, &unix.Rlimit{Cur: min(most, l.Max), Max: min(most, l.Max)})
	}
	if err != nil {
		return fmt.Errorf("set resource limit %d to %d: %w", resource, most, err)
	}
	return nil
}

// undumpable keeps processes of the same user away from the process's memory, as ptrace(2) has it. It is an attribute of the process.
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make process undumpable: %w", err)
	}
	return nil
}

func forbidNewPrivileges() error {
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}
