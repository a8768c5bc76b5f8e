package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// defaultSocket is the file name of socket 0.
const defaultSocket = "memif.sock"

// MemifSocket is a unix socket on which memifs accept clients. It exists while it has memifs.
type MemifSocket struct {
	ID        uint32
	Path      string
	Listening bool
}

// memifSocket is a socket with its memifs.
type memifSocket struct {
	path   string
	memifs map[uint32]*iface // by id
}

// MemifSockets are the sockets of memifs.
type MemifSockets struct {
	*barrier
	runDir string // directory of relative paths, or empty
	byID   map[uint32]*memifSocket
}

// SetRunDir sets the directory of relative socket paths, and adds socket 0 there. Without it relative paths are errors.
func (ss *MemifSockets) SetRunDir(dir string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.runDir = dir
	ss.byID[0] = &memifSocket{path: filepath.Join(dir, defaultSocket), memifs: map[uint32]*iface{}}
}

// Add adds a socket id for a path and returns it. NoIndex allocates an id. As in VPP an id can be added
// again with the same path.
func (ss *MemifSockets) Add(id uint32, path string) (uint32, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if id == 0 {
		return id, InvalidArgument
	}
	if id == NoIndex {
		id = ss.freeIDLocked()
	}
	path, err := ss.pathLocked(path)
	if err != nil {
		return id, err
	}
	if old, ok := ss.byID[id]; ok {
		if old.path == path {
			return id, nil
		}
		return id, EntryAlreadyExists
	}
	ss.byID[id] = &memifSocket{path: path, memifs: map[uint32]*iface{}}
	return id, nil
}

// Delete deletes a socket id. The error is UnexpectedInterfaceState if it has memifs.
func (ss *MemifSockets) Delete(id uint32) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s, ok := ss.byID[id]
	switch {
	case !ok, id == 0:
		return InvalidArgument
	case len(s.memifs) > 0:
		return UnexpectedInterfaceState
	}
	delete(ss.byID, id)
	return nil
}

// List lists the sockets by id.
func (ss *MemifSockets) List() []MemifSocket {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var list []MemifSocket
	for _, id := range slices.Sorted(maps.Keys(ss.byID)) {
		s := ss.byID[id]
		list = append(list, MemifSocket{ID: id, Path: s.path, Listening: len(s.memifs) > 0})
	}
	return list
}

// pathLocked completes a path as VPP does. It rejects VPP's prefixes such as "abstract:", because abstract sockets have
// no access control.
func (ss *MemifSockets) pathLocked(name string) (string, error) {
	name, _, _ = strings.Cut(name, "\x00")
	switch scheme, _, hasScheme := strings.Cut(name, ":"); {
	case name == "":
		return "", InvalidArgument
	case strings.HasPrefix(name, "/"):
		return name, nil
	case hasScheme && !strings.Contains(scheme, "/"), strings.HasPrefix(name, "@"):
		return "", Unsupported
	case ss.runDir == "":
		return "", SyscallError1
	}
	return filepath.Join(ss.runDir, name), nil
}

// freeIDLocked allocates a random id, as VPP does, so that ids are not reused soon.
func (ss *MemifSockets) freeIDLocked() uint32 {
	for {
		id := rand.Uint32() //nolint:gosec // not a secret
		if _, taken := ss.byID[id]; !taken && id != 0 && id != NoIndex {
			return id
		}
	}
}

// pathInUseLocked reports whether another socket id has memifs on the path.
func (ss *MemifSockets) pathInUseLocked(id uint32, path string) bool {
	for other, s := range ss.byID {
		if other != id && s.path == path && len(s.memifs) > 0 {
			return true
		}
	}
	return false
}

func (ss *MemifSockets) stateLocked(s *State) {
	for id, socket := range ss.byID {
		s.Sockets = append(s.Sockets, SocketState{ID: id, Path: socket.path})
	}
}

func (ss *MemifSockets) restoreLocked(s *State) error {
	for _, socket := range s.Sockets {
		if old := ss.byID[socket.ID]; old != nil && old.path != socket.Path {
			return fmt.Errorf("%w: memif socket %d at %s and %s", errState, socket.ID, old.path, socket.Path)
		}
		ss.byID[socket.ID] = &memifSocket{path: socket.Path, memifs: map[uint32]*iface{}}
	}
	return nil
}
