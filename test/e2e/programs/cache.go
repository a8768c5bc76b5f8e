package programs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cacheVariable names the environment variable with the directory of built programs.
const cacheVariable = "WEFT_E2E_CACHE"

// Cache returns the directory of built programs and logs of runs: WEFT_E2E_CACHE, or weft-e2e in the user's cache.
func Cache() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (set %s): %w", cacheVariable, err)
	}
	return filepath.Join(dir, "weft-e2e"), nil
}

// buildCache holds compiled packages until all programs are built: 5 GB that are not needed afterwards.
func buildCache(cache string) string { return filepath.Join(cache, "go-build") }

// lock excludes concurrent builds.
func lock(cache string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the cache's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	return func() { _ = f.Close() }, nil
}
