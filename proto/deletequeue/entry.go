package deletequeue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Version is the version of the entries that this package writes, and the newest that it reads.
const Version = 1

// maxEntryBytes bounds a file: three names of at most 256 bytes each, some time and braces.
const maxEntryBytes = 4 << 10

// maxName bounds the network's name and the container id, maxIfName is the kernel's.
const (
	maxName   = 256
	maxIfName = 15
)

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// Key identifies an attachment.
type Key struct {
	Network, ContainerID, IfName string
}

// String joins the parts with slashes; none of them may hold one.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// fileName is the same for every DEL of one attachment, so that a repeated DEL is one entry.
func (k Key) fileName() string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:]) + ".json"
}

func (k Key) validate() error {
	switch {
	case len(k.Network) > maxName || !nameForm.MatchString(k.Network):
		return fmt.Errorf("network %.40q is no legal name", k.Network)
	case len(k.ContainerID) > maxName || !nameForm.MatchString(k.ContainerID):
		return fmt.Errorf("container id %.40q is no legal id", k.ContainerID)
	case k.IfName == "" || len(k.IfName) > maxIfName || strings.ContainsAny(k.IfName, "/: \t\r\n\x00"):
		return fmt.Errorf("interface name %.40q is no legal name", k.IfName)
	}
	return nil
}

// Entry is one DEL that is still to be done.
type Entry struct {
	Version     int       `json:"version"`
	Network     string    `json:"network"`
	ContainerID string    `json:"containerID"`
	IfName      string    `json:"ifName"`
	Time        time.Time `json:"time"`               // of the DEL
	Attempts    int       `json:"attempts,omitempty"` // of the agent, that failed
}

// NewEntry makes the entry of a DEL of key.
func NewEntry(key Key, now time.Time) Entry {
	return Entry{Version: Version, Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName, Time: now.UTC()}
}

// Key returns the attachment that is to go.
func (e Entry) Key() Key { return Key{e.Network, e.ContainerID, e.IfName} }

// encode gives the file's content.
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

// parse reads what encode wrote. Keys that it does not know are ignored, an unknown version is an error.
func parse(b []byte) (Entry, error) {
	if len(b) > maxEntryBytes {
		return Entry{}, fmt.Errorf("entry has more than %d bytes", maxEntryBytes)
	}
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	if e.Version < 1 || e.Version > Version {
		return Entry{}, fmt.Errorf("version %d is not known, only 1 to %d are", e.Version, Version)
	}
	if e.Attempts < 0 {
		return Entry{}, fmt.Errorf("%d attempts", e.Attempts)
	}
	return e, e.Key().validate()
}
