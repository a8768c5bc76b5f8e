package port

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netns"
)

// inNamespace runs f in the network namespace at path; empty: in the current one.
func inNamespace(path string, f func() error) error {
	if path == "" {
		return f()
	}
	// Opening a FIFO must not block; setns refuses it.
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: open %s: %w", ErrNamespaceGone, path, err)
	}
	defer unix.Close(there)
	err = netns.Do(there, f)
	if errors.Is(err, netns.ErrNotEntered) {
		return fmt.Errorf("%w: %s: %w", ErrNamespaceGone, path, err)
	}
	return err
}
