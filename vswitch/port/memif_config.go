package port

import "github.com/weftnet/weft/memif"

// MemifConfig says which memif to serve. Its clients bring the memory, and say within these limits how many queues there are and how
// long they are, and how large their buffers.
type MemifConfig struct {
	Socket string       // path of the unix socket, which several memifs may share
	ID     uint32       // of the memif on its socket
	Secret memif.Secret // empty: clients need none
	Bare   bool         // mode IP: packets come and go without Ethernet headers
	Name   string       // of the interface, for the peer

	RxQueues, TxQueues int // at most; 0: 255
	RingSize           int // slots at most, a power of two; 0: 16384
}

// MemifPeer describes a client that is connected. Directions are ours.
type MemifPeer struct {
	Name, Interface    string // what it calls itself and its end
	RxQueues, TxQueues int
	RingSize           int  // slots of the largest ring
	Regions            int  // pieces of memory that are shared
	Guarded            bool // its memory cannot be sealed, and is used more slowly
}
