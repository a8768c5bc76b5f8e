package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// server serves the plugin on one socket file, until it is stopped. A socket file that somebody removed needs another one.
type server struct {
	grpc  *grpc.Server
	path  string
	stamp stamp
	ended chan struct{}
}

// serve takes the path over from any earlier socket.
func serve(path string, p v1beta1.DevicePluginServer) (*server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := listenPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("serve kubelet: %w", err)
	}
	// The file may be another's by the time this one is closed, so it is removed by stop, which looks.
	listener.SetUnlinkOnClose(false)
	s := &server{grpc: grpc.NewServer(), path: path, stamp: stampOf(path), ended: make(chan struct{})}
	v1beta1.RegisterDevicePluginServer(s.grpc, p)
	go func() {
		defer close(s.ended)
		_ = s.grpc.Serve(listener) // ends with stop; whatever else ends it, the next look finds it ended
	}()
	return s, nil
}

// listenPrivately makes a socket that only root may connect to. Third-party plugins can write to the directory, so the mode is not set
// by path: the file gets the mode that the socket has before bind, less the umask.
func listenPrivately(path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return failed
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return listener.(*net.UnixListener), nil
}

// stands reports whether kubelet can reach the server.
func (s *server) stands() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.hasFile()
	}
}

// hasFile reports whether the socket file is the server's.
func (s *server) hasFile() bool { return !s.stamp.isZero() && stampOf(s.path) == s.stamp }

// stop ends the server with all that it does, streams too, and waits for that.
func (s *server) stop() {
	s.grpc.Stop()
	<-s.ended
	if s.hasFile() {
		_ = os.Remove(s.path) // kubelet forgives a socket that nobody serves
	}
}

// stamp tells whether a file is still the same one: the number alone does not, file systems use numbers again.
type stamp struct {
	device, inode uint64
	modified      int64 // nanoseconds
}

// stampOf is that of the file at path; zero if there is none.
func stampOf(path string) stamp {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{s.Dev, s.Ino, info.ModTime().UnixNano()}
}

func (s stamp) isZero() bool { return s == stamp{} }
