package scripts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/agent/statefile/statefiletest"
)

// stateCommand changes the agent's state file. Except for fill and free, the agent must not run.
//
//	state damage     overwrite the middle of the state file
//	state reboot     make the state file one of an earlier boot
//	state limit SIZE mount a file system of that size (1m) on the state directory
//	state fill       use up the free space of that file system
//	state free       remove the files of state fill
func stateCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		usage(ts, "state damage|reboot|limit|fill|free")
	}
	s := on(ts)
	switch args[0] {
	case "damage":
		ts.Check(damage(s.stateFile()))
	case "reboot":
		ts.Check(statefiletest.ChangeBoot(s.stateFile()))
	case "limit":
		ts.Check(unix.Mount("weft-state", s.node.State(), "tmpfs", 0, "mode=0700,size="+strings.Join(args[1:], "")))
		s.limited = true
	case "fill":
		ts.Check(fill(s.filler()))
	case "free":
		ts.Check(os.Remove(s.filler()))
	default:
		ts.Fatalf("state: unknown command %s", args[0])
	}
}

func (s *stage) stateFile() string { return filepath.Join(s.node.State(), "state.db") }
func (s *stage) filler() string    { return filepath.Join(s.node.State(), "filler") }

// unlimit unmounts the file system of the state.
func (s *stage) unlimit() error {
	if !s.limited {
		return nil
	}
	return unix.Unmount(s.node.State(), unix.MNT_DETACH)
}

// damage overwrites all pages but the first two, which bbolt needs to find the others.
func damage(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := 2 * int64(os.Getpagesize())
	_, err = f.WriteAt(slices.Repeat([]byte("damaged!"), int(info.Size()-head)/8), head)
	return err
}

// fill writes a file until the file system is full.
func fill(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for chunk := make([]byte, 1<<12); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("fill the file system: %w", err)
	}
	return nil
}

// queueCommand: queue prints the sandboxes of queued DELs, or "empty".
func queueCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		usage(ts, "queue")
	}
	s := on(ts)
	files, err := filepath.Glob(filepath.Join(s.node.State(), "delete-queue", "*.json"))
	ts.Check(err)
	if len(files) == 0 {
		_, _ = fmt.Fprintln(ts.Stdout(), "empty")
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		ts.Check(err)
		for _, b := range s.sandboxes {
			if strings.Contains(string(content), b.id) {
				_, _ = fmt.Fprintln(ts.Stdout(), b.name)
			}
		}
	}
}
