package confine

import (
	"errors"
	"fmt"

	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// DataplaneCapabilities are the capabilities that weft-vswitch keeps, if it was started with them.
var DataplaneCapabilities = []cap.Value{
	cap.NET_ADMIN,    // taps with their addresses, routes and MTU
	cap.NET_RAW,      // packet sockets on veths and network cards
	cap.SYS_ADMIN,    // network namespaces
	cap.DAC_OVERRIDE, // memif sockets in directories of pods' users
	cap.SETUID,       // the memif broker's user,
	cap.SETGID,       // its group,
	cap.KILL,         // and its end
	cap.SYS_PTRACE,   // namespaces at /proc/PID/ns/net; the filter denies ptrace(2) itself
}

// dropCapabilities reduces the permitted and effective capabilities of all threads to the kept ones. Nothing is
// inheritable or ambient, and the bounding set is emptied, so that an executed program has no capabilities.
func dropCapabilities(kept []cap.Value) error {
	had := cap.GetProc()
	left := cap.NewSet()
	for _, value := range kept {
		has, err := had.GetFlag(cap.Permitted, value)
		if err == nil && has {
			err = errors.Join(left.SetFlag(cap.Permitted, true, value), left.SetFlag(cap.Effective, true, value))
		}
		if err != nil {
			return fmt.Errorf("drop capabilities: %v: %w", value, err)
		}
	}
	if err := emptyBounds(had); err != nil {
		return err
	}
	if err := left.SetProc(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// emptyBounds empties the ambient and bounding sets. Without SETPCAP the container's bounding set stays: with
// no_new_privs an executed program still gains no capability.
func emptyBounds(had *cap.Set) error {
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	if may, err := had.GetFlag(cap.Permitted, cap.SETPCAP); err != nil || !may {
		return err
	}
	for value := range cap.MaxBits() {
		if bound, err := cap.GetBound(value); err != nil || !bound {
			continue
		}
		if err := cap.DropBound(value); err != nil {
			return fmt.Errorf("drop %v of the bounding set: %w", value, err)
		}
	}
	return nil
}
