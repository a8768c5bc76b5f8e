package wire

import "github.com/weftnet/weft/internal/secret"

// MemifSocket is a unix socket on which the dataplane serves memifs. Kind vpp.memif-socket. Its group and
// mode come from its directory: a process that may search the directory may connect.
type MemifSocket struct {
	ID        uint32 `json:"id"`        // unique in the dataplane, 1 to 2^32-2
	Path      string `json:"path"`      // absolute, at most 107 bytes
	Directory string `json:"directory"` // key of the linux.file of its directory
}

// MemifSocketKey returns the key of the socket with this name.
func MemifSocketKey(name string) string { return Key(KindMemifSocket, name) }

// MemifMode is the layer of the packets of a memif.
type MemifMode string

// The modes of a memif.
const (
	MemifEthernet MemifMode = "ethernet"
	MemifIP       MemifMode = "ip"
)

// Memif has the fields of interfaces of type memif. The dataplane is the server (VPP: master).
type Memif struct {
	Socket     string      `json:"socket"` // name of a vpp.memif-socket
	ID         uint32      `json:"id"`     // on the socket
	Mode       MemifMode   `json:"mode"`
	Secret     secret.Text `json:"secret"`     // at most 23 bytes; "": clients need no secret
	RingSize   int         `json:"ringSize"`   // slots, a power of two, 2 to 16384
	BufferSize int         `json:"bufferSize"` // bytes of a slot's buffer
	RxQueues   int         `json:"rxQueues"`   // queues that the dataplane reads, 1 to 255
	TxQueues   int         `json:"txQueues"`   // queues that the dataplane writes, 1 to 255
}
