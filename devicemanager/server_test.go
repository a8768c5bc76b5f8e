package devicemanager

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Finding 8: the mode was set by the path of the socket, in a directory that third-party plugins can write to.
func TestFinding8DevicePluginSocketChangesNoModeThroughLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to be root: the attacker is another user")
	}
	directory, err := os.MkdirTemp("", "plugins") // t.TempDir is one that other users cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.Chmod(directory, 0o777), os.WriteFile(victim, nil, 0o600), os.Chmod(victim, 0o644)); err != nil {
		t.Fatal(err)
	}
	path, link := filepath.Join(directory, "weft.sock"), filepath.Join(directory, "link")
	done, ended, replaced := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if unix.Setfsuid(1234) != nil {
			return
		}
		for {
			select {
			case <-done:
				return
			default:
			}
			if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
				_ = os.Symlink(victim, link)
			} else if os.Rename(link, path) == nil {
				replaced++
			}
		}
	}()
	for range 1000 {
		if s, err := serve(path, &v1beta1.UnimplementedDevicePluginServer{}); err == nil {
			s.stop()
		}
		if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o644 {
			t.Errorf("the file of root is %v now, %v: its mode was changed through a link", info.Mode(), err)
			break
		}
	}
	close(done)
	<-ended
	if replaced == 0 {
		t.Error("the attacker replaced no socket: this proves nothing")
	}
}

func TestOnlyRootMayConnectToTheDevicePlugin(t *testing.T) {
	was := unix.Umask(0)
	defer unix.Umask(was)
	path := filepath.Join(t.TempDir(), "s")
	s, err := serve(path, &v1beta1.UnimplementedDevicePluginServer{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s.stop()
}
