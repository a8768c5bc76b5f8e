package deletequeue

import (
	"fmt"
	"os"
	"path/filepath"
)

// poisonDir holds invalid files and entries that failed too often, each with a file NAME.reason.
const poisonDir = "poison"

// maxPoisoned limits the number of files in poisonDir. More files are deleted; only the error reports them.
const maxPoisoned = 4096

// poison moves a file to poisonDir and returns an error that says so.
func (d directory) poison(name string, reason error) error {
	dir := d.path(poisonDir)
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("poison %s: %w", name, err)
	}
	kept, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("poison %s: %w", name, err)
	}
	if len(kept) >= 2*maxPoisoned {
		return fmt.Errorf("entry %s deleted because %s is full: %w", name, dir,
			dropAll(d.path(name), reason))
	}
	if err := os.Rename(d.path(name), filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("poison %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".reason"), []byte(reason.Error()+"\n"), 0o600); err != nil {
		return fmt.Errorf("poison %s: %w", name, err)
	}
	return fmt.Errorf("entry %s moved to %s: %w", name, dir, reason)
}

// dropAll removes path, which may be a directory, and returns the reason.
func dropAll(path string, reason error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return reason
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
