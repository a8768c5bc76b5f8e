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
	PID  string // in its own PID namespace; "": unknown
	Name string // see Config.Name; "": none
}

// String returns the process's name in logs and errors.
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

// Status describes the processes of an API socket.
type Status struct {
	Active  *Holder // serves the socket; nil: none
	Standby *Holder // takes over next; nil: none
}

// StatusOf inspects an API socket without changing anything.
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
