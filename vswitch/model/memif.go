package model

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// The modes of a memif, numbered as in VPP's API.
const (
	MemifEthernet uint32 = 0
	MemifIP       uint32 = 1
)

// maxMemifRing is the protocol's limit, in slots.
const maxMemifRing = 1 << 14

// Memif says what memif to make, in memif_create_v2's words. A client chooses its rings and buffers itself; unlike VPP, the server
// takes no more queues and no larger rings than are asked for here.
type Memif struct {
	Socket   uint32 // its number
	ID       uint32 // on the socket
	Client   bool   // VPP: slave; refused
	Mode     uint32
	Secret   memif.Secret
	RingSize uint32     // slots of a ring at most; 0: 16384
	RxQueues int        // at most; 0: 255
	TxQueues int        // at most; 0: 255
	MAC      *frame.MAC // nil: a random one
}

// MemifDetails is what memif_details tells, and who is connected.
type MemifDetails struct {
	Memif
	Interface
	Peer *port.MemifPeer // nil: no client
}

// AddMemif makes memif<socket>/<id>, with its socket if it is the first there, and returns its index. Its link is up while
// a client is connected.
//
// The errors are those of memif_create_v2_t_handler and memif_create_if (VPP 25.10, src/plugins/memif/memif_api.c and
// memif.c), in their order: a ring that is no power of two, an unknown socket (both INVALID_ARGUMENT); a socket of the
// other role, an id that is taken (SUBIF_ALREADY_EXISTS); a mode that is not (SYSCALL_ERROR_2); a socket that cannot be
// bound, as its directory is missing (SYSCALL_ERROR_4). Where VPP serves clients only we say UNSUPPORTED.
func (m *Model) AddMemif(c Memif) (uint32, error) {
	defer m.change()()
	s, err := m.checkMemifLocked(c)
	if err != nil {
		return 0, err
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return 0, err
	}
	i := newMemif(index, c)
	order := port.MemifConfig{Socket: s.path, ID: c.ID, Secret: c.Secret, Bare: c.Mode == MemifIP, Name: i.Name,
		RxQueues: c.RxQueues, TxQueues: c.TxQueues, RingSize: int(min(c.RingSize, maxMemifRing))}
	if err := m.engine.OpenMemif(index, order); err != nil {
		m.log.Warn("memif not made", "interface", i.Name, "socket", s.path, "err", err)
		return 0, SyscallError4
	}
	if err := m.addLocked(i); err != nil {
		return 0, errors.Join(err, m.engine.ClosePort(index))
	}
	s.memifs[c.ID] = i
	return index, nil
}

func (m *Model) checkMemifLocked(c Memif) (*memifSocket, error) {
	s := m.sockets[c.Socket]
	switch {
	case c.RingSize != 0 && bits.OnesCount32(c.RingSize) != 1, s == nil:
		return nil, InvalidArgument
	case len(s.memifs) > 0 && c.Client, s.memifs[c.ID] != nil:
		return nil, SubifAlreadyExists
	case c.Mode > MemifIP:
		return nil, SyscallError2
	case c.Client:
		return nil, Unsupported
	case m.samePathLocked(c.Socket, s.path):
		m.log.Warn("memif not made", "socket", s.path, "err", "another socket number has memifs on this path")
		return nil, SyscallError4
	}
	return s, nil
}

func newMemif(index uint32, c Memif) *iface {
	base := Interface{Index: index, Name: fmt.Sprintf("memif%d/%d", c.Socket, c.ID), DevType: "memif"}
	var i *iface
	if c.Mode == MemifIP {
		i = newIface(base) // without MAC and MTU, as in VPP
	} else {
		base.MAC = randomMAC()
		if c.MAC != nil {
			base.MAC = *c.MAC
		}
		i = newEthernet(base)
	}
	i.memif, i.portFailed = &c, true
	return i
}

// DeleteMemif removes a memif, whose client is told; another interface is InvalidSwIfIndex.
func (m *Model) DeleteMemif(index uint32) error {
	defer m.change()()
	i, ok := m.interfaces[index]
	if !ok || i.memif == nil {
		return InvalidSwIfIndex
	}
	if err := m.engine.ClosePort(index); err != nil && !errors.Is(err, forward.ErrNoPort) {
		m.log.Error("port not closed", "interface", i.Name, "err", err)
	}
	delete(m.sockets[i.memif.Socket].memifs, i.memif.ID)
	m.removeLocked(i)
	return nil
}

// Memifs lists the memifs by index.
func (m *Model) Memifs() []MemifDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []MemifDetails
	for _, n := range m.indexesLocked() {
		if i := m.interfaces[n]; i.memif != nil {
			list = append(list, MemifDetails{Memif: *i.memif, Interface: i.Interface, Peer: i.peer})
		}
	}
	return list
}

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
