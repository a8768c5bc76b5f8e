// Package confine drops privileges of the running process: capabilities, system calls and new privileges
// (no_new_privs). The kernel never returns them, and child processes inherit the confinement.
package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Dataplane confines the calling process as weft-vswitch: all present and future threads. It keeps
// DataplaneCapabilities and loses DeniedSyscalls. An error names the steps that failed; the other steps are done.
func Dataplane() error {
	return errors.Join(
		dropCapabilities(DataplaneCapabilities),
		forbidNewPrivileges(),
		loadFilter(denied()),
	)
}

// Broker confines the calling process as the memif broker: no capabilities, BrokerSyscalls only, at most
// BrokerDescriptors descriptors, no core dumps, and no access to its memory by processes of the same user. An error
// names the steps that failed; the other steps are done.
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

// BrokerDescriptors limits the descriptors of a broker. An established connection uses two; a client that is pending or
// being closed uses at most three, and each container has at most 16 of those.
const BrokerDescriptors = 16384

// limit lowers a resource limit, unless it is lower already.
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

// undumpable denies access to the process's memory to processes of the same user, as for ptrace(2). It applies to the
// whole process.
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
