package confine

import (
	"errors"
	"fmt"

	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// DataplaneCapabilities are what weft-vswitch keeps of the capabilities that it was started with.
var DataplaneCapabilities = []cap.Value{
	cap.NET_ADMIN,    // makes taps, sets their addresses, routes and MTU
	cap.NET_RAW,      // packet sockets on veths and network cards
	cap.SYS_ADMIN,    // enters network namespaces
	cap.DAC_OVERRIDE, // makes memif sockets in directories that belong to pods' users
	cap.SETUID,       // starts the memif broker as another user,
	cap.SETGID,       // of another group,
	cap.KILL,         // and ends it
	cap.SYS_PTRACE,   // opens namespaces by /proc/PID/ns/net; the filter denies ptrace(2) itself
}

// dropCapabilities leaves the threads of the process those of the kept capabilities that they have: permitted and effective. Nothing
// is inheritable or ambient, and the bounding set is emptied, so that a program that the process executes has none, as any user
// is.
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

// emptyBounds empties the ambient and bounding sets. Without SETPCAP the bounding set stays, which then is the container's: with
// no_new_privs an executed program has no capability that the caller does not have.
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
