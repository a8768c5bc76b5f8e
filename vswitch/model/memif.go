package model

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// The modes of a memif, with the numbers of VPP's API.
const (
	MemifEthernet uint32 = 0
	MemifIP       uint32 = 1
)

// maxMemifRing is the maximum number of slots of a ring.
const maxMemifRing = 1 << 14

// Memif holds the fields of memif_create_v2. The client chooses the rings and buffers. Unlike VPP, the server rejects
// more queues and larger rings than these.
type Memif struct {
	Socket   uint32 // socket id
	ID       uint32
	Client   bool // VPP: slave; unsupported
	Mode     uint32
	Secret   memif.Secret
	RingSize uint32     // maximum slots of a ring; 0: 16384
	RxQueues int        // maximum; 0: 255
	TxQueues int        // maximum; 0: 255
	MAC      *frame.MAC // nil: random
}

// MemifDetails holds the fields of memif_details, and the client.
type MemifDetails struct {
	Memif
	Interface
	Peer *port.MemifPeer // nil: not connected
}

// AddMemif creates memif<socket>/<id> and returns its index. The first memif of a socket opens the socket. The link is
// up while a client is connected.
//
// The errors and their order are those of memif_create_v2_t_handler and memif_create_if (VPP 25.10,
// src/plugins/memif/memif_api.c and memif.c): a ring size that is not a power of two and an unknown socket
// (INVALID_ARGUMENT); a socket of the other role and an id in use (SUBIF_ALREADY_EXISTS); an unknown mode
// (SYSCALL_ERROR_2); a failed bind, such as in a missing directory (SYSCALL_ERROR_4). Clients, which only VPP supports,
// are UNSUPPORTED.
func (m *Model) AddMemif(c Memif) (uint32, error) {
	defer m.change()()
	s, err := m.checkMemifLocked(c)
	if err != nil {
		return 0, err
	}
	index, err := m.Interfaces.freeIndexLocked()
	if err != nil {
		return 0, err
	}
	i := newMemif(index, c)
	if err := m.engine.OpenMemif(index, c.config(s, i.Name)); err != nil {
		m.log.Warn("memif not created", "interface", i.Name, "socket", s.path, "err", err)
		return 0, SyscallError4
	}
	if _, err := m.Interfaces.addLocked(i); err != nil {
		return 0, err
	}
	s.memifs[c.ID] = i
	return index, nil
}

// config returns the configuration for the engine.
func (c *Memif) config(s *memifSocket, name string) port.MemifConfig {
	return port.MemifConfig{Socket: s.path, ID: c.ID, Secret: c.Secret, Bare: c.Mode == MemifIP, Name: name,
		RxQueues: c.RxQueues, TxQueues: c.TxQueues, RingSize: int(min(c.RingSize, maxMemifRing))}
}

func (m *Model) checkMemifLocked(c Memif) (*memifSocket, error) {
	s := m.sockets.byID[c.Socket]
	switch {
	case c.RingSize != 0 && bits.OnesCount32(c.RingSize) != 1, s == nil:
		return nil, InvalidArgument
	case len(s.memifs) > 0 && c.Client, s.memifs[c.ID] != nil:
		return nil, SubifAlreadyExists
	case c.Mode > MemifIP:
		return nil, SyscallError2
	case c.Client:
		return nil, Unsupported
	case m.sockets.pathInUse(c.Socket, s.path):
		m.log.Warn("memif not created", "socket", s.path, "err", "another socket id has memifs on this path")
		return nil, SyscallError4
	}
	return s, nil
}

func newMemif(index uint32, c Memif) *iface {
	base := Interface{Index: index, Name: fmt.Sprintf("memif%d/%d", c.Socket, c.ID), DevType: "memif"}
	i := newIface(base) // in mode IP without MAC and MTU, as in VPP
	if c.Mode == MemifEthernet {
		base.MAC = *orRandomMAC(c.MAC)
		i = newEthernet(base)
	}
	i.kind = &c
	i.portFailed = true
	return i
}

// DeleteMemif deletes a memif and disconnects its client. For other interfaces it returns InvalidSwIfIndex.
func (m *Model) DeleteMemif(index uint32) error { return deleteKind[Memif](m.Interfaces, index) }

// Memifs lists the memifs by index.
func (m *Model) Memifs() []MemifDetails {
	return listKind(m.Interfaces, NoIndex, func(i *iface, c *Memif) MemifDetails {
		return MemifDetails{Memif: *c, Interface: i.Interface, Peer: i.peer.MemifPeer}
	})
}

// peer is the client of a memif.
type peer struct {
	*port.MemifPeer           // nil: not connected
	changed         time.Time // last connect or disconnect
	quiet           bool      // log at debug level
}

// quietPeriod is the time after a connect or disconnect in which another connect is logged at debug level only.
const quietPeriod = 2 * time.Second

// logPeerLocked logs a connect or disconnect. A client that reconnects all the time does not fill the log.
func (m *Model) logPeerLocked(i *iface, e forward.Event) {
	now := m.now()
	if e.Kind == forward.PeerConnected {
		i.peer.quiet = now.Sub(i.peer.changed) < quietPeriod
	}
	i.peer.changed = now
	level := slog.LevelInfo
	if i.peer.quiet {
		level = slog.LevelDebug
	}
	if e.Kind == forward.PeerGone {
		m.log.Log(context.Background(), level, "memif disconnected", "interface", i.Name, "err", e.Err)
		return
	}
	m.log.Log(context.Background(), level, "memif connected", "interface", i.Name, "peer", e.Peer.Name, "peerInterface",
		e.Peer.Interface)
}

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

// memifSockets holds all memif sockets. The lock of the Model guards it.
type memifSockets struct {
	runDir string // directory of relative paths, or empty
	byID   map[uint32]*memifSocket
}

// SetRunDir sets the directory of relative socket paths, and adds socket 0 there. Without it relative paths are errors.
func (m *Model) SetRunDir(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sockets.runDir = dir
	m.sockets.byID[0] = &memifSocket{path: filepath.Join(dir, defaultSocket), memifs: map[uint32]*iface{}}
}

// AddMemifSocket adds a socket id for a path and returns it. NoIndex allocates an id. As in VPP an id can be added
// again with the same path.
func (m *Model) AddMemifSocket(id uint32, path string) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == 0 {
		return id, InvalidArgument
	}
	if id == NoIndex {
		id = m.sockets.freeID()
	}
	path, err := m.sockets.path(path)
	if err != nil {
		return id, err
	}
	if old, ok := m.sockets.byID[id]; ok {
		if old.path == path {
			return id, nil
		}
		return id, EntryAlreadyExists
	}
	m.sockets.byID[id] = &memifSocket{path: path, memifs: map[uint32]*iface{}}
	return id, nil
}

// DeleteMemifSocket deletes a socket id. The error is UnexpectedInterfaceState if it has memifs.
func (m *Model) DeleteMemifSocket(id uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sockets.byID[id]
	switch {
	case !ok, id == 0:
		return InvalidArgument
	case len(s.memifs) > 0:
		return UnexpectedInterfaceState
	}
	delete(m.sockets.byID, id)
	return nil
}

// MemifSockets lists the sockets by id.
func (m *Model) MemifSockets() []MemifSocket {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []MemifSocket
	for _, id := range slices.Sorted(maps.Keys(m.sockets.byID)) {
		s := m.sockets.byID[id]
		list = append(list, MemifSocket{ID: id, Path: s.path, Listening: len(s.memifs) > 0})
	}
	return list
}

// path completes a path as VPP does. It rejects VPP's prefixes such as "abstract:", because abstract sockets have
// no access control.
func (ms *memifSockets) path(name string) (string, error) {
	name, _, _ = strings.Cut(name, "\x00")
	switch scheme, _, hasScheme := strings.Cut(name, ":"); {
	case name == "":
		return "", InvalidArgument
	case strings.HasPrefix(name, "/"):
		return name, nil
	case hasScheme && !strings.Contains(scheme, "/"), strings.HasPrefix(name, "@"):
		return "", Unsupported
	case ms.runDir == "":
		return "", SyscallError1
	}
	return filepath.Join(ms.runDir, name), nil
}

// freeID allocates a random id, as VPP does, so that ids are not reused soon.
func (ms *memifSockets) freeID() uint32 {
	for {
		id := rand.Uint32() //nolint:gosec // not a secret
		if _, taken := ms.byID[id]; !taken && id != 0 && id != NoIndex {
			return id
		}
	}
}

// pathInUse reports whether another socket id has memifs on the path.
func (ms *memifSockets) pathInUse(id uint32, path string) bool {
	for other, s := range ms.byID {
		if other != id && s.path == path && len(s.memifs) > 0 {
			return true
		}
	}
	return false
}
