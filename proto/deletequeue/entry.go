package deletequeue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// version is the version of the written entries, and the newest supported version.
const version = 1

// maxEntryBytes limits the size of a file: three names of at most 256 bytes, a time and the JSON syntax.
const maxEntryBytes = 4 << 10

// maxName limits the network's name and the container ID. maxIfName is the kernel's limit.
const (
	maxName   = 256
	maxIfName = 15
)

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`) })

// Key identifies an attachment.
type Key struct {
	Network, ContainerID, IfName string
}

// String returns NETWORK/CONTAINER/INTERFACE. The parts contain no slashes.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// fileName depends only on the attachment: repeated DELs are one entry.
func (k Key) fileName() string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:]) + ".json"
}

func (k Key) validate() error {
	switch {
	case len(k.Network) > maxName || !nameForm().MatchString(k.Network):
		return fmt.Errorf("invalid network name %.40q", k.Network)
	case len(k.ContainerID) > maxName || !nameForm().MatchString(k.ContainerID):
		return fmt.Errorf("invalid container ID %.40q", k.ContainerID)
	case k.IfName == "" || len(k.IfName) > maxIfName || strings.ContainsAny(k.IfName, "/: \t\r\n\x00"):
		return fmt.Errorf("invalid interface name %.40q", k.IfName)
	}
	return nil
}

// Entry is one queued DEL.
type Entry struct {
	Version     int       `json:"version"`
	Network     string    `json:"network"`
	ContainerID string    `json:"containerID"`
	IfName      string    `json:"ifName"`
	Time        time.Time `json:"time"`               // of the DEL
	Attempts    int       `json:"attempts,omitempty"` // failed attempts of the agent
}

// NewEntry returns the entry of a DEL of key at the time now.
func NewEntry(key Key, now time.Time) Entry {
	return Entry{
		Version:     version,
		Network:     key.Network,
		ContainerID: key.ContainerID,
		IfName:      key.IfName,
		Time:        now.UTC(),
	}
}

// Key returns the attachment to delete.
func (e Entry) Key() Key { return Key{e.Network, e.ContainerID, e.IfName} }

// encode returns the file's content.
func (e Entry) encode() ([]byte, error) {
	if err := e.Key().validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return append(b, '\n'), nil
}

// parse decodes an entry. It ignores unknown keys and rejects unknown versions.
func parse(b []byte) (Entry, error) {
	if len(b) > maxEntryBytes {
		return Entry{}, fmt.Errorf("entry has more than %d bytes", maxEntryBytes)
	}
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	if e.Version < 1 || e.Version > version {
		return Entry{}, fmt.Errorf("unsupported version %d; supported are 1 to %d", e.Version, version)
	}
	if e.Attempts < 0 {
		return Entry{}, fmt.Errorf("invalid number of attempts %d", e.Attempts)
	}
	return e, e.Key().validate()
}
