package wire

import "github.com/weftnet/weft/internal/secret"

// MemifSocket is a unix socket on which the dataplane serves memifs. Kind vpp.memif-socket. It takes its group from its
// directory, and its mode: who may look into the directory may connect.
type MemifSocket struct {
	ID        uint32 `json:"id"`        // in the dataplane: 1 to 2^32-2, of one socket only
	Path      string `json:"path"`      // absolute, at most 107 bytes
	Directory string `json:"directory"` // key of the linux.file that it stands in
}

// MemifSocketKey is the key of the socket of that name.
func MemifSocketKey(name string) string { return Key(KindMemifSocket, name) }

// MemifMode says what the packets of a memif begin with.
type MemifMode string

// The modes of a memif.
const (
	MemifEthernet MemifMode = "ethernet"
	MemifIP       MemifMode = "ip"
)

// Memif holds what only an interface of type memif has. The dataplane is the server (VPP: master).
type Memif struct {
	Socket     string      `json:"socket"` // name of a vpp.memif-socket
	ID         uint32      `json:"id"`     // on the socket
	Mode       MemifMode   `json:"mode"`
	Secret     secret.Text `json:"secret"`     // at most 23 bytes; "" = anybody may connect
	RingSize   int         `json:"ringSize"`   // slots, a power of two, 2 to 16384
	BufferSize int         `json:"bufferSize"` // bytes of a slot's buffer
	RxQueues   int         `json:"rxQueues"`   // that the dataplane reads from, 1 to 255
	TxQueues   int         `json:"txQueues"`   // that the dataplane writes to, 1 to 255
}
