package memif

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyStaleSocketsAreReplaced(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "s")
	first, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ListenOptions{}); err == nil {
		t.Error("took the socket of a listener")
	}
	first.file = nil // it leaves its file behind, as one that is killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ListenOptions{}); err == nil {
		t.Error("replaced a file")
	}
}

func TestModeOfSocketFollowsFromItsDirectory(t *testing.T) {
	for directory, want := range map[os.FileMode]os.FileMode{
		0o700: 0o600, 0o750: 0o660, 0o2750: 0o660, 0o755: 0o666, 0o710: 0o660, 0o701: 0o606, 0o740: 0o600,
	} {
		path := t.TempDir()
		if err := unix.Chmod(path, uint32(directory)); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(filepath.Join(path, "s"), ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(l.Path())
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("directory %o: socket %v, %v", directory, info.Mode(), err)
		}
		_ = l.Close()
	}
}
