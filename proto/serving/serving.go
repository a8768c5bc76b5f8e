// Package serving keeps, in a file beside an agent's socket, when the agent last served pods. weft-cni reads it where the
// agent is away or starting: what restarts in seconds is no reason to take a node out of service.
package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Mark says that the agent at the socket serves now.
func Mark(socket string) error {
	now, path := time.Now(), File(socket)
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mark that pods are served: %w", err)
	}
	return nil
}

// Within reports whether the agent at the socket served in the time before now. No mark is from before the node's boot,
// where the socket is in a directory that a boot empties.
func Within(socket string, d time.Duration) bool {
	info, err := os.Lstat(File(socket))
	if err != nil {
		return false
	}
	age := time.Since(info.ModTime())
	return age >= 0 && age < d
}

// File is where the mark of the agent at the socket is.
func File(socket string) string { return socket + ".served" }
