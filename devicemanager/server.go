package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/internal/unixsocket"
)

// server serves the plugin on one socket file until it is stopped. A removed socket file needs a new server.
type server struct {
	grpc  *grpc.Server
	path  string
	file  fileID
	ended chan struct{}
}

// serve replaces an earlier socket at path.
func serve(path string, p v1beta1.DevicePluginServer) (*server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := unixsocket.Bind(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve kubelet: %w", err)
	}
	s := &server{grpc: grpc.NewServer(), path: path, file: fileIDOf(path), ended: make(chan struct{})}
	v1beta1.RegisterDevicePluginServer(s.grpc, p)
	go func() {
		defer close(s.ended)
		_ = s.grpc.Serve(listener) // ends with stop; the next reconcile notices any other end
	}()
	return s, nil
}

// isReachable reports whether kubelet can reach the server.
func (s *server) isReachable() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.ownsFile()
	}
}

// ownsFile reports whether the socket file belongs to the server.
func (s *server) ownsFile() bool { return !s.file.isZero() && fileIDOf(s.path) == s.file }

// stop ends the server with its streams and waits for the end.
func (s *server) stop() {
	s.grpc.Stop()
	<-s.ended
	if s.ownsFile() {
		_ = os.Remove(s.path) // kubelet tolerates a stale socket
	}
}

// fileID identifies a file. It has the modification time because file systems reuse inode numbers.
type fileID struct {
	device, inode uint64
	modified      int64 // nanoseconds
}

// fileIDOf returns the id of the file at path, zero if it does not exist.
func fileIDOf(path string) fileID {
	info, err := os.Lstat(path)
	if err != nil {
		return fileID{}
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{s.Dev, s.Ino, info.ModTime().UnixNano()}
}

func (s fileID) isZero() bool { return s == fileID{} }

// streams counts the open ListAndWatch streams. Without one kubelet does not know the devices.
type streams struct {
	ended chan struct{} // receives after the end of a stream; holds one

	mu     sync.Mutex
	count  int
	opened uint64 // total
}

func newStreams() *streams { return &streams{ended: make(chan struct{}, 1)} }

// open counts a stream until ended is called.
func (s *streams) open() (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.opened++
	return func() {
		s.close()
		select {
		case s.ended <- struct{}{}:
		default:
		}
	}
}

func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
}

// state returns the number of open streams and of all streams so far.
func (s *streams) state() (open int, opened uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.opened
}
