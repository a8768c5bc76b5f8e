package external

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Finding 8: a file was checked by its path, and read by it again. Who may rename files in the directory had its own
// read.
func TestFinding8ExternalFileIsReadAsItWasChecked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to be root: the attacker is another user")
	}
	directory, err := os.MkdirTemp("", "external") // t.TempDir is one that other users cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	const attacker = 1234
	name := filepath.Join(directory, "a.yaml")
	theirs := filepath.Join(directory, "theirs")
	err = errors.Join(os.Chown(directory, attacker, attacker), os.WriteFile(name, []byte("good: 1"), 0o644),
		os.WriteFile(theirs, []byte("evil: 1"), 0o644), os.Chown(theirs, attacker, attacker))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	swapped := 0
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if unix.Setfsuid(attacker) != nil {
			return
		}
		for {
			select {
			case <-done:
				return
			default:
			}
			if unix.Renameat2(unix.AT_FDCWD, theirs, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE) == nil {
				swapped++
			}
		}
	}()
	good := 0
	for range 20000 {
		values, err := readExternal(name)
		if _, evil := values["evil"]; evil {
			t.Error("a file of another user was read")
			break
		}
		if err == nil {
			good++
		}
	}
	close(done)
	<-ended
	if swapped == 0 || good == 0 {
		t.Errorf("%d swaps, the file of root was read %d times: this proves nothing", swapped, good)
	}
}
