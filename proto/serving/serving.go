// Package serving stores the time at which an agent last served pods, in a file beside its socket. weft-cni reads it
// while the agent does not answer: an agent that restarts within seconds does not make the node unready.
package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Mark records that the agent at the socket serves now.
func Mark(socket string) error {
	now := time.Now()
	path := File(socket)
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record that pods are served: %w", err)
	}
	return nil
}

// Within reports whether the agent at the socket served during the last d. A reboot removes the record if the socket is
// in /run.
func Within(socket string, d time.Duration) bool {
	info, err := os.Lstat(File(socket))
	if err != nil {
		return false
	}
	age := time.Since(info.ModTime())
	return age >= 0 && age < d
}

// File returns the path of the record of the agent at the socket.
func File(socket string) string { return socket + ".served" }
