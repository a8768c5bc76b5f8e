package vpp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"path"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	// maxSecret is what the API's field holds before its NUL.
	maxSecret = 23
	// maxRing is VPP's limit of a memif's ring, in slots.
	maxRing = 1 << 14
)

// newMemif makes the request for a memif that the dataplane serves. Zero copy would be the client's affair.
func newMemif(name string, v wire.Interface, socket SocketID) *request {
	what := fmt.Sprintf("memif_create_v2 %s (id %d on socket %s)", name, v.Memif.ID, v.Memif.Socket)
	return ask(what, &memif.MemifCreateV2{
		Role: memif.MEMIF_ROLE_API_MASTER, Mode: apiMemifMode(v.Memif.Mode), SocketID: uint32(socket), ID: v.Memif.ID,
		RxQueues: uint8(v.Memif.RxQueues), TxQueues: uint8(v.Memif.TxQueues),
		RingSize: uint32(v.Memif.RingSize), BufferSize: uint16(v.Memif.BufferSize), NoZeroCopy: true,
		HwAddr: [6]byte(v.MAC), Secret: string(v.Memif.Secret),
	}, &memif.MemifCreateV2Reply{})
}

func deleteMemif(name string, i Index) *request {
	return ask("memif_delete "+name, &memif.MemifDelete{SwIfIndex: i.api()}, &memif.MemifDeleteReply{}).fineIf(api.INVALID_SW_IF_INDEX)
}

func apiMemifMode(m wire.MemifMode) memif.MemifMode {
	if m == wire.MemifIP {
		return memif.MEMIF_MODE_API_IP
	}
	return memif.MEMIF_MODE_API_ETHERNET
}

func dumpMemifs() *request { return askAll(&memif.MemifDump{}, &memif.MemifDetails{}) }

func memifsIn(r *request) map[Index]*memif.MemifDetails {
	found := map[Index]*memif.MemifDetails{}
	for _, d := range listOf[*memif.MemifDetails](r) {
		found[Index(d.SwIfIndex)] = d
	}
	return found
}

// memifOf is what the dataplane reports of a memif that can be relied on: of a server it knows its client's sizes only.
func (p *ports) memifOf(d *memif.MemifDetails) wire.Memif {
	v := wire.Memif{Socket: socketName(p.sockets[SocketID(d.SocketID)]), ID: d.ID, Mode: wire.MemifMode(d.Mode.String())}
	switch d.Mode {
	case memif.MEMIF_MODE_API_ETHERNET:
		v.Mode = wire.MemifEthernet
	case memif.MEMIF_MODE_API_IP:
		v.Mode = wire.MemifIP
	}
	return v
}

func validateMemif(m wire.Memif) error {
	switch {
	case m.Socket == "":
		return fmt.Errorf("memif %d has no socket", m.ID)
	case m.Mode != wire.MemifEthernet && m.Mode != wire.MemifIP:
		return fmt.Errorf("mode %q is neither ethernet nor ip", m.Mode)
	case len(m.Secret) > maxSecret || bytes.IndexByte([]byte(m.Secret), 0) >= 0:
		return fmt.Errorf("secret: it has at most %d bytes, none of them 0", maxSecret)
	case m.RingSize < 2 || m.RingSize > maxRing || bits.OnesCount(uint(m.RingSize)) != 1:
		return fmt.Errorf("ring of %d slots: a ring has 2 to %d, a power of two", m.RingSize, maxRing)
	case m.BufferSize < 1 || m.BufferSize > 65535:
		return fmt.Errorf("buffers of %d bytes are not within 1 and 65535", m.BufferSize)
	case m.RxQueues < 1 || m.RxQueues > 255 || m.TxQueues < 1 || m.TxQueues > 255:
		return fmt.Errorf("%d and %d queues are not within 1 and 255", m.RxQueues, m.TxQueues)
	}
	return nil
}

// socketOf is the dependency on the socket.
func socketOf(m wire.Memif) []kvscheduler.Dep {
	return []kvscheduler.Dep{{Label: "memif socket", On: ref(wire.KindMemifSocket, m.Socket)}}
}

// socketPath is the path of a memif's socket; "" of another interface.
func (p *ports) socketPath(i Index) string {
	if m, is := p.memifs[i]; is {
		return p.sockets[SocketID(m.SocketID)]
	}
	return ""
}

// diedAsMemif tells whether an interface is a memif on a socket below our directory: without a tag it can only be ours.
func (p *ports) diedAsMemif(i Index) bool {
	return isBelow(p.socketPath(i), p.socketsDir)
}

// memifAt is the memif that has the wanted id on the wanted socket.
func (p *ports) memifAt(it *interfaceItem) (Index, bool) {
	for i, m := range p.memifs {
		if it.Want.Type == wire.TypeMemif && m.ID == it.Want.Memif.ID && SocketID(m.SocketID) == handle[SocketID](it, 0) {
			return i, true
		}
	}
	return 0, false
}

// isBelow tells whether a path leads to something in dir, however deep.
func isBelow(name, dir string) bool {
	for dir != "" && len(name) > len(dir) {
		if name = path.Dir(name); name == dir {
			return true
		}
	}
	return false
}

func redactInterface(v wire.Interface) wire.Interface {
	if v.Memif.Secret != "" {
		v.Memif.Secret = secret.Hidden
	}
	return v
}

// storedInterface is an interface as the journal keeps it, with its secret.
type storedInterface struct {
	wire.Interface
	Memif storedMemif `json:"memif,omitzero"`
}

type storedMemif struct {
	wire.Memif
	Secret string `json:"secret,omitempty"`
}

func encodeInterface(v wire.Interface) ([]byte, error) {
	stored := storedInterface{Interface: v}
	if v.Type == wire.TypeMemif {
		stored.Memif = storedMemif{v.Memif, string(v.Memif.Secret)}
	}
	return json.Marshal(stored)
}

func decodeInterface(b []byte) (wire.Interface, error) {
	var stored storedInterface
	err := json.Unmarshal(b, &stored)
	stored.Interface.Memif = stored.Memif.Memif
	stored.Interface.Memif.Secret = secret.Text(stored.Memif.Secret)
	return stored.Interface, err
}
