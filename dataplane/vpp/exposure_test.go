package vpp

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSocketThatOtherUsersMayConnectToIsExposed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give files to a group")
	}
	for _, tt := range []struct {
		name              string
		socket, directory fs.FileMode
		group             int
		want              string
	}{
		{"as VPP makes it in a directory of root's", 0o775, 0o700, 0, ""},
		{"as VPP makes it in a directory that all may search", 0o775, 0o755, 0, ""},
		{"with a group, as socksvr's gid does", 0o770, 0o755, 1234, "its group"},
		{"with a group that may not pass the directory", 0o770, 0o700, 1234, ""},
		{"for all", 0o777, 0o755, 0, "every user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "vpp")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			socket := filepath.Join(dir, "api.sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for _, err := range []error{
				os.Chown(socket, 0, tt.group), os.Chmod(socket, tt.socket), os.Chmod(dir, tt.directory),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := exposure(socket); got != tt.want {
				t.Errorf("exposed to %q, want %q", got, tt.want)
			}
		})
	}
}
