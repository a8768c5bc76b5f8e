package privatedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const otherUser = 1234

// modeOf returns the mode of a file, "" if it does not exist.
func modeOf(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return info.Mode().String()
}

func TestDirectoryIsCreatedOrRestricted(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"missing": func(string) error { return nil },
		"private": func(path string) error { return os.MkdirAll(path, 0o700) },
		"open to all users": func(path string) error {
			return errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o777))
		},
		"open to the group":       func(path string) error { return os.MkdirAll(path, 0o750) },
		"closed to its own owner": func(path string) error { return os.MkdirAll(path, 0o500) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "parent", "private")
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			if err := Make(path); err != nil || modeOf(path) != "drwx------" {
				t.Errorf("mode %s, %v", modeOf(path), err)
			}
		})
	}
}

// A link below the parents of the directory was made by an administrator: /var/run is one on most systems.
func TestLinkInTheParentsIsFollowed(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(root+"/real", 0o755), os.Symlink("real", root+"/link")); err != nil {
		t.Fatal(err)
	}
	if err := Make(root + "/link/private"); err != nil || modeOf(root+"/real/private") != "drwx------" {
		t.Errorf("mode %s, %v", modeOf(root+"/real/private"), err)
	}
}

func TestForeignFilesAreRefusedAndUnchanged(t *testing.T) {
	for name, prepare := range map[string]func(path, outside string) error{
		"link to a directory": func(path, outside string) error { return os.Symlink(outside, path) },
		"link to a file":      func(path, outside string) error { return os.Symlink(outside+"/victim", path) },
		"link to nothing":     func(path, outside string) error { return os.Symlink(outside+"/missing", path) },
		"regular file":        func(path, _ string) error { return os.WriteFile(path, nil, 0o644) },
		"FIFO":                func(path, _ string) error { return unix.Mkfifo(path, 0o644) },
		"directory of another user": func(path, _ string) error {
			if os.Geteuid() != 0 {
				return nil
			}
			return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, otherUser, otherUser))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "private")
			outside := t.TempDir()
			err := errors.Join(os.Chmod(outside, 0o755), os.WriteFile(outside+"/victim", nil, 0o644),
				prepare(path, outside))
			if err != nil {
				t.Fatal(err)
			}
			if modeOf(path) == "" {
				t.Skip("needs to be root: the directory belongs to another user")
			}
			before := modeOf(path)
			err = Make(path)
			if err == nil || !strings.Contains(err.Error(), path+" is not a directory owned by root") {
				t.Errorf("%v", err)
			}
			if after := modeOf(path); after != before {
				t.Errorf("the file was %s and is %s", before, after)
			}
			if modeOf(outside) != "drwxr-xr-x" || modeOf(outside+"/victim") != "-rw-r--r--" ||
				modeOf(outside+"/missing") != "" {
				t.Errorf("changed outside: %s, %s, %s", modeOf(outside), modeOf(outside+"/victim"),
					modeOf(outside+"/missing"))
			}
		})
	}
}

func TestParentThatIsNoDirectoryIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Make(file + "/private"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		t.Error("the file is gone")
	}
}
