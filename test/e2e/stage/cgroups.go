package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// cgroupMount is the mount of the hierarchies: one for version 2, one below it for each controller for version 1.
const cgroupMount = "/sys/fs/cgroup"

// timeout is the timeout for killed processes to leave their cgroup.
const timeout = 10 * time.Second

// Cgroup returns the cgroup of the run in each hierarchy, as kubelet names it.
func (s Stage) Cgroup() string { return "/" + s.Name() }

// cgroups returns the directories of the run's cgroup in all hierarchies.
func (s Stage) cgroups() []string {
	one, _ := filepath.Glob(filepath.Join(cgroupMount, s.Name())) // a run's name has no pattern in it
	many, _ := filepath.Glob(filepath.Join(cgroupMount, "*", s.Name()))
	return append(one, many...)
}

// removeCgroups removes the run's cgroups; its processes have been killed.
func (s Stage) removeCgroups() error {
	return RemoveCgroups(s.cgroups(), timeout)
}

// RemoveCgroups removes cgroups and those below them when their processes have ended.
func RemoveCgroups(roots []string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := removeTrees(roots)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}

func removeTrees(roots []string) error {
	var failed error
	for _, root := range roots {
		failed = errors.Join(failed, removeTree(root))
	}
	return failed
}

// removeTree removes the directories below root, the deepest first; the files of a cgroup are removed with it.
func removeTree(root string) error {
	var directories []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			directories = append(directories, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read cgroup %s: %w", root, err)
	}
	for _, directory := range slices.Backward(directories) {
		if err := os.Remove(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}
