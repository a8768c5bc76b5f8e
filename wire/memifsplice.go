package wire

import "github.com/weftnet/weft/internal/secret"

// MemifSplice connects the memifs of two pods without the dataplane: the agent passes their control messages, and the
// pods share the memory of the packets. Kind linux.memif-splice; its name is the absolute path of the socket to which
// the client connects, at most 107 bytes. The server listens on an abstract socket in its pod's network namespace.
type MemifSplice struct {
	Directory    string      `json:"directory"` // key of the linux.file of the socket's directory
	ClientID     uint32      `json:"clientID"`
	ClientSecret secret.Text `json:"clientSecret"`
	Namespace    Namespace   `json:"namespace"` // of the server
	Server       string      `json:"server"`    // "@" and the name of the server's socket
	ServerID     uint32      `json:"serverID"`
	ServerSecret secret.Text `json:"serverSecret"`
}

// MemifSpliceKey returns the key of the splice with the client's socket at path.
func MemifSpliceKey(path string) string { return Key(KindMemifSplice, path) }
