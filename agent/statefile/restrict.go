package statefile

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openRestricted opens a file that holds secrets, and removes the permissions of other users. A user who has the file open already
// can go on reading it.
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
		return fmt.Errorf("take the permissions of other users away: %w", err)
	}
	log.Warn("other users could read a file with secrets: replace the secrets if they may have", "file", f.Name(), "mode", info.Mode().Perm().String())
	return nil
}

// restrictDamaged restricts state files that were moved aside as damaged: they hold the same secrets.
func restrictDamaged(path string, log *slog.Logger) {
	names, err := filepath.Glob(path + ".damaged-*")
	if err != nil {
		return // the directory's name is a pattern, and a bad one
	}
	for _, name := range names {
		f, err := openRestricted(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, log)
		if err != nil {
			log.Warn("damaged state file is left as it is", "file", name, "err", err)
			continue
		}
		_ = f.Close()
	}
}
