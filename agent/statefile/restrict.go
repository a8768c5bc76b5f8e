package statefile

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openRestricted opens a file with secrets and removes the permissions of other users. A user who already has the file
// open can still read it.
func openRestricted(name string, flag int, mode os.FileMode, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	if err := restrict(f, log); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func restrict(f *os.File, log *slog.Logger) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := f.Chmod(0o600); err != nil {
		return fmt.Errorf("remove the permissions of other users: %w", err)
	}
	log.Warn("file with secrets was accessible to other users: replace the secrets if they may have read it",
		"file", f.Name(), "mode", info.Mode().Perm().String())
	return nil
}

// restrictDamaged restricts damaged state files that were moved aside: they contain the same secrets.
func restrictDamaged(path string, log *slog.Logger) {
	names, err := filepath.Glob(path + ".damaged-*")
	if err != nil {
		return // the directory's name is an invalid pattern
	}
	for _, name := range names {
		f, err := openRestricted(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, log)
		if err != nil {
			log.Warn("permissions of damaged state file not changed", "file", name, "err", err)
			continue
		}
		_ = f.Close()
	}
}
