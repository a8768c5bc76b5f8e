package devicemanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// Bounds of an owner record, in bytes. A record with all devices is smaller. The record of a claim has the UIDs of all
// its pods, so a claim with a larger record is refused before it is prepared. The difference is for the names of the
// pod and its sandbox, which a grant adds.
const (
	maxRecord      = 64 << 10
	maxClaimRecord = 48 << 10
)

// metadata is the part of an allocation that the state file and the owner record share. It holds no secret. The order
// of its fields is the order in the stored JSON.
type metadata struct {
	Socket  uint32    `json:"socket"`
	Devices []string  `json:"devices,omitempty"`
	Created time.Time `json:"created"`
	grantee
	Successor string `json:"heir,omitempty"`
	Direct    bool   `json:"direct,omitempty"`

	Claim *pod.ClaimedDevice `json:"claim,omitempty"`
}

// grantee is the container that an allocation was granted to, with the user that owns its files.
type grantee struct {
	Pod        pod.ID    `json:"pod,omitzero"`
	Container  string    `json:"container,omitempty"`
	UID        int       `json:"uid"`
	GID        int       `json:"gid"`
	Granted    bool      `json:"granted,omitempty"`
	Attachment pod.Key   `json:"attachment,omitzero"`
	Netns      pod.Netns `json:"netns,omitzero"`
}

func metadataOf(a *allocation) metadata {
	return metadata{
		Socket: a.Socket, Devices: a.Devices, Created: a.Created,
		grantee: grantee{
			Pod: a.Pod, Container: a.Container, UID: a.UID, GID: a.GID, Granted: a.Granted,
			Attachment: a.Attachment, Netns: a.Netns,
		},
		Successor: a.successor, Direct: a.direct, Claim: a.Claim,
	}
}

// allocation is the inverse of metadataOf.
func (c metadata) allocation(id, directory string) *allocation {
	return &allocation{successor: c.Successor, direct: c.Direct, Allocation: pod.Allocation{
		ID: id, Socket: c.Socket, Devices: c.Devices, Directory: directory, Created: c.Created,
		Pod: c.Pod, Container: c.Container, UID: c.UID, GID: c.GID, Granted: c.Granted,
		Attachment: c.Attachment, Netns: c.Netns, Claim: c.Claim,
	}}
}

// record is the owner record next to an allocation's directory. It survives the loss of the state file.
type record struct {
	Allocation string `json:"allocation"`
	metadata
}

func recordOf(a *allocation) record { return record{a.ID, metadataOf(a)} }

// bucket is the state file's bucket of allocations, by id.
const bucket = "devices"

// Saved is an allocation in the state file. It holds the secret in clear text: do not log it.
type Saved struct {
	ID        string `json:"id"`
	Directory string `json:"directory"`
	Secret    string `json:"secret"`
	metadata
}

// String hides the secret from code that prints the whole value.
func (s Saved) String() string { return "allocation " + s.ID }

// GoString hides it too.
func (s Saved) GoString() string { return s.String() }

func (a *allocation) saved() Saved { return Saved{a.ID, a.Directory, string(a.Secret), metadataOf(a)} }

func (s Saved) allocation() *allocation {
	a := s.metadata.allocation(s.ID, s.Directory)
	a.Secret = secret.Text(s.Secret)
	return a
}

// readAllocation reads an allocation from its record and its secret.
func readAllocation(directory string) (*allocation, error) {
	raw, err := readOwned(recordPath(directory), os.Geteuid(), 0o077)
	if err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	a, err := parseRecord(raw, directory)
	if err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	if info, err := os.Lstat(directory); err != nil || !info.IsDir() {
		return nil, errors.New("its directory is lost, including the secret")
	}
	text, err := readOwned(secretPath(directory), a.UID, 0o022)
	if errors.Is(err, errForeign) {
		text, err = readOwned(secretPath(directory), os.Geteuid(), 0o022)
	}
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	a.Secret = secret.Text(text)
	return a, a.validate()
}

// parseRecord reads an owner record, which holds no secret.
func parseRecord(raw []byte, directory string) (*allocation, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if r.Allocation != filepath.Base(directory) {
		return nil, fmt.Errorf("it belongs to allocation %q", r.Allocation)
	}
	return r.allocation(r.Allocation, directory), nil
}

var errForeign = errors.New("another user could have written it")

// readOwned reads a regular file that belongs to uid and does not have the forbidden permissions. It follows no
// symlink.
func readOwned(path string, uid int, forbidden fs.FileMode) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || int(owner.Uid) != uid || info.Mode().Perm()&forbidden != 0 {
		return nil, fmt.Errorf("%s: %w", path, errForeign)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(raw) > maxRecord {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxRecord)
	}
	return raw, err
}
