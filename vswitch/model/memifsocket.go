package model

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// defaultSocket is the name of socket 0, which VPP has from the start.
const defaultSocket = "memif.sock"

// MemifSocket is a file that memifs meet their peers on. It is made with the first memif that is served on it, and removed
// with the last.
type MemifSocket struct {
	ID        uint32
	Path      string
	Listening bool
}

// memifSocket is a socket and who uses it.
type memifSocket struct {
	path   string
	memifs map[uint32]*iface // by id
}

// SetRunDir says where relative names of sockets begin, and makes socket 0 there. Without it they are refused.
func (m *Model) SetRunDir(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runDir = dir
	m.sockets[0] = &memifSocket{path: filepath.Join(dir, defaultSocket), memifs: map[uint32]*iface{}}
}

// AddMemifSocket gives a path a number and returns that; NoIndex chooses one. The same again is no error, as in VPP.
func (m *Model) AddMemifSocket(id uint32, path string) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == 0 {
		return id, InvalidArgument
	}
	if id == NoIndex {
		id = m.freeSocketLocked()
	}
	path, err := m.socketPathLocked(path)
	if err != nil {
		return id, err
	}
	if old, ok := m.sockets[id]; ok {
		if old.path == path {
			return id, nil
		}
		return id, EntryAlreadyExists
	}
	m.sockets[id] = &memifSocket{path: path, memifs: map[uint32]*iface{}}
	return id, nil
}

// DeleteMemifSocket forgets a number; one that a memif uses is UnexpectedInterfaceState.
func (m *Model) DeleteMemifSocket(id uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sockets[id]
	switch {
	case !ok, id == 0:
		return InvalidArgument
	case len(s.memifs) > 0:
		return UnexpectedInterfaceState
	}
	delete(m.sockets, id)
	return nil
}

// MemifSockets lists the sockets by number.
func (m *Model) MemifSockets() []MemifSocket {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []MemifSocket
	for _, id := range slices.Sorted(maps.Keys(m.sockets)) {
		s := m.sockets[id]
		list = append(list, MemifSocket{ID: id, Path: s.path, Listening: len(s.memifs) > 0})
	}
	return list
}

// socketPathLocked completes a name as VPP does. VPP also takes "abstract:" and more before it: who may connect to such
// a socket nobody can say.
func (m *Model) socketPathLocked(name string) (string, error) {
	name, _, _ = strings.Cut(name, "\x00")
	switch scheme, _, hasScheme := strings.Cut(name, ":"); {
	case name == "":
		return "", InvalidArgument
	case strings.HasPrefix(name, "/"):
		return name, nil
	case hasScheme && !strings.Contains(scheme, "/"), strings.HasPrefix(name, "@"):
		return "", Unsupported
	case m.runDir == "":
		return "", SyscallError1
	}
	return filepath.Join(m.runDir, name), nil
}

// freeSocketLocked chooses a number by chance, as VPP does: one that has just become free does not soon mean something
// else.
func (m *Model) freeSocketLocked() uint32 {
	for {
		id := rand.Uint32() //nolint:gosec // a number, no secret
		if _, taken := m.sockets[id]; !taken && id != 0 && id != NoIndex {
			return id
		}
	}
}

// samePathLocked says that another number's memifs are served on the path already.
func (m *Model) samePathLocked(id uint32, path string) bool {
	for other, s := range m.sockets {
		if other != id && s.path == path && len(s.memifs) > 0 {
			return true
		}
	}
	return false
}
