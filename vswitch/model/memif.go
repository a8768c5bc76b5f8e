package model

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
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

// Memifs are the memifs.
type Memifs struct {
	*barrier
	log        *slog.Logger
	interfaces *Interfaces
	sockets    *MemifSockets
}

// Add creates memif<socket>/<id> and returns its index. The first memif of a socket opens the socket. The link is
// up while a client is connected.
//
// The errors and their order are those of memif_create_v2_t_handler and memif_create_if (VPP 25.10,
// src/plugins/memif/memif_api.c and memif.c): a ring size that is not a power of two and an unknown socket
// (INVALID_ARGUMENT); a socket of the other role and an id in use (SUBIF_ALREADY_EXISTS); an unknown mode
// (SYSCALL_ERROR_2); a failed bind, such as in a missing directory (SYSCALL_ERROR_4). Clients, which only VPP supports,
// are UNSUPPORTED.
func (ms *Memifs) Add(c Memif) (uint32, error) {
	defer ms.change()()
	s, err := ms.checkNewLocked(c)
	if err != nil {
		return 0, err
	}
	index, err := ms.interfaces.freeIndexLocked()
	if err != nil {
		return 0, err
	}
	i := newMemif(index, c)
	if err := ms.engine.OpenMemif(index, c.config(s, i.Name)); err != nil {
		ms.log.Warn("memif not created", "interface", i.Name, "socket", s.path, "err", err)
		return 0, SyscallError4
	}
	if _, err := ms.interfaces.addLocked(i); err != nil {
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

func (ms *Memifs) checkNewLocked(c Memif) (*memifSocket, error) {
	s := ms.sockets.byID[c.Socket]
	switch {
	case c.RingSize != 0 && bits.OnesCount32(c.RingSize) != 1, s == nil:
		return nil, InvalidArgument
	case len(s.memifs) > 0 && c.Client, s.memifs[c.ID] != nil:
		return nil, SubifAlreadyExists
	case c.Mode > MemifIP:
		return nil, SyscallError2
	case c.Client:
		return nil, Unsupported
	case ms.sockets.pathInUseLocked(c.Socket, s.path):
		ms.log.Warn("memif not created", "socket", s.path, "err", "another socket id has memifs on this path")
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

// Delete deletes a memif and disconnects its client. For other interfaces it returns InvalidSwIfIndex.
func (ms *Memifs) Delete(index uint32) error { return deleteKind[Memif](ms.interfaces, index) }

// List lists the memifs by index.
func (ms *Memifs) List() []MemifDetails {
	return listKind(ms.interfaces, NoIndex, func(i *iface, c *Memif) MemifDetails {
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

// detachLocked removes a memif that is being deleted from its socket.
func (ms *Memifs) detachLocked(i *iface) {
	if c := kindOf[Memif](i); c != nil {
		delete(ms.sockets.byID[c.Socket].memifs, c.ID)
	}
}

// logPeerLocked logs a connect or disconnect. A client that reconnects all the time does not fill the log.
func (ms *Memifs) logPeerLocked(i *iface, e forward.Event) {
	now := time.Now()
	if e.Kind == forward.PeerConnected {
		i.peer.quiet = now.Sub(i.peer.changed) < quietPeriod
	}
	i.peer.changed = now
	level := slog.LevelInfo
	if i.peer.quiet {
		level = slog.LevelDebug
	}
	if e.Kind == forward.PeerGone {
		ms.log.Log(context.Background(), level, "memif disconnected", "interface", i.Name, "err", e.Err)
		return
	}
	ms.log.Log(context.Background(), level, "memif connected", "interface", i.Name,
		"peer", e.Peer.Name, "peerInterface", e.Peer.Interface)
}

// checkLocked checks that the socket of a memif exists, and adds the memif to it.
func (ms *Memifs) checkLocked(i *iface) error {
	c := kindOf[Memif](i)
	if c == nil {
		return nil
	}
	socket := ms.sockets.byID[c.Socket]
	if socket == nil || socket.memifs[c.ID] != nil {
		return fmt.Errorf("%w: %s is on memif socket %d", errState, i.Name, c.Socket)
	}
	socket.memifs[c.ID] = i
	return nil
}
