package vswitch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is a process that holds a lock file.
type Holder struct {
	PID  string // in its own PID namespace; "": not known
	Name string // see Config.Name; "": none
}

// String is how logs and errors name the process.
func (h Holder) String() string {
	switch {
	case h.PID == "":
		return "pid (unknown)"
	case h.Name == "":
		return "pid " + h.PID
	}
	return fmt.Sprintf("pid %s (%s)", h.PID, h.Name)
}

func holderOf(path string) (h Holder) {
	text, _ := os.ReadFile(path)
	h.PID, h.Name, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	return h
}

// Status is what runs on an API socket.
type Status struct {
	Active  *Holder // answers on the socket; nil: none does
	Standby *Holder // takes over next; nil: none does
}

// StatusOf finds what runs on an API socket. It changes nothing.
func StatusOf(ctx context.Context, apiSocket string) (s Status) {
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", apiSocket); err == nil {
		_ = conn.Close()
		active := holderOf(LockPath(apiSocket))
		s.Active = &active
	}
	if isHeld(StandbyPath(apiSocket)) {
		standby := holderOf(StandbyPath(apiSocket))
		s.Standby = &standby
	}
	return s
}

// isHeld reports whether a process holds the lock file.
func isHeld(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // releases the flock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
