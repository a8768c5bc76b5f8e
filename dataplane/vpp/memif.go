package vpp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/bits"
	"os"
	"path"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	// maxSecret is the size of the API's field without its NUL.
	maxSecret = 23
	// maxRing is VPP's limit of a memif's ring, in slots.
	maxRing = 1 << 14
)

// newMemif requests a memif with the dataplane as server. Zero copy is an option of clients.
func newMemif(name string, v wire.Interface, socket SocketID) *request {
	what := fmt.Sprintf("memif_create_v2 %s (id %d on socket %s)", name, v.Memif.ID, v.Memif.Socket)
	return ask(what, &memif.MemifCreateV2{
		Role: memif.MEMIF_ROLE_API_MASTER, Mode: memifModes[v.Memif.Mode], SocketID: uint32(socket), ID: v.Memif.ID,
		RxQueues: uint8(v.Memif.RxQueues), TxQueues: uint8(v.Memif.TxQueues),
		RingSize: uint32(v.Memif.RingSize), BufferSize: uint16(v.Memif.BufferSize), NoZeroCopy: true,
		HwAddr: [6]byte(v.MAC), Secret: string(v.Memif.Secret),
	}, &memif.MemifCreateV2Reply{})
}

func deleteMemif(name string, i Index) *request {
	return ask("memif_delete "+name, &memif.MemifDelete{SwIfIndex: i.api()}, &memif.MemifDeleteReply{}).fineIf(
		api.INVALID_SW_IF_INDEX)
}

var memifModes = map[wire.MemifMode]memif.MemifMode{
	wire.MemifEthernet: memif.MEMIF_MODE_API_ETHERNET,
	wire.MemifIP:       memif.MEMIF_MODE_API_IP,
}

func dumpMemifs() *request { return askAll(&memif.MemifDump{}, &memif.MemifDetails{}) }

// memifs are the memifs of the dataplane.
type memifs struct {
	byIndex map[Index]*memif.MemifDetails
	sockets map[SocketID]string // paths
}

func newMemifs(dump, sockets *request) memifs { return memifs{memifsIn(dump), socketsIn(sockets)} }

func memifsIn(r *request) map[Index]*memif.MemifDetails {
	return mapOf(r, func(d *memif.MemifDetails) (Index, *memif.MemifDetails) { return Index(d.SwIfIndex), d })
}

// value returns the reliable fields of a memif. The dataplane reports the client's sizes.
func (ms memifs) value(d *memif.MemifDetails) wire.Memif {
	v := wire.Memif{
		Socket: socketName(ms.sockets[SocketID(d.SocketID)]),
		ID:     d.ID,
		Mode:   wire.MemifMode(d.Mode.String()),
	}
	for mode, api := range memifModes {
		if d.Mode == api {
			v.Mode = mode
		}
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

func socketOf(m wire.Memif) []kvscheduler.Dep {
	return []kvscheduler.Dep{{Label: "memif socket", On: ref(wire.KindMemifSocket, m.Socket)}}
}

// socketPath is the path of a memif's socket; "" for another interface.
func (ms memifs) socketPath(i Index) string {
	if m, ok := ms.byIndex[i]; ok {
		return ms.sockets[SocketID(m.SocketID)]
	}
	return ""
}

// at finds a memif with the socket and number of a wanted one.
func (ms memifs) at(it *interfaceItem) (Index, bool) {
	for i, m := range ms.byIndex {
		if it.Want.Type == wire.TypeMemif && m.ID == it.Want.Memif.ID &&
			SocketID(m.SocketID) == handle[SocketID](it, 0) {
			return i, true
		}
	}
	return 0, false
}

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

// SocketID is the dataplane's number of a memif socket.
type SocketID uint32

// maxSocketPath is the size of a socket address without its NUL.
const maxSocketPath = 107

type memifSocketItem = kvscheduler.Item[wire.MemifSocket, SocketID]

// memifSockets have no name or tag in the dataplane, only a number and a path.
type memifSockets struct {
	recreated[wire.MemifSocket, SocketID]
	c *Client
}

func memifSocketDescriptor(c *Client) kvscheduler.Descriptor[wire.MemifSocket, SocketID] {
	return kvscheduler.Descriptor[wire.MemifSocket, SocketID]{
		Name: wire.KindMemifSocket, Lane: Lane,
		Equal:    equal[wire.MemifSocket],
		Validate: validateMemifSocket,
		Deps: func(_ string, v wire.MemifSocket) []kvscheduler.Dep {
			directory, err := kvscheduler.ParseRef(v.Directory)
			if err != nil {
				return nil // refused by validateMemifSocket
			}
			return []kvscheduler.Dep{{Label: "directory", On: directory}}
		},
		Recreate: always[wire.MemifSocket],
		Merge: func(dumped, last wire.MemifSocket) wire.MemifSocket {
			dumped.Directory = last.Directory
			return dumped
		},
		Backend: memifSockets{c: c},
	}
}

func validateMemifSocket(name string, v wire.MemifSocket) error {
	switch {
	case name == "" || strings.Contains(name, "#"):
		return fmt.Errorf("name %q: it is not empty and has no #", name)
	case v.ID == 0 || v.ID == ^uint32(0):
		return fmt.Errorf("socket %d belongs to the dataplane", v.ID)
	case !path.IsAbs(v.Path) || path.Clean(v.Path) != v.Path || strings.ContainsRune(v.Path, 0):
		return fmt.Errorf("path %q is not absolute and clean", v.Path)
	case len(v.Path) > maxSocketPath:
		return fmt.Errorf("path %s: a socket's path has at most %d bytes", v.Path, maxSocketPath)
	}
	if _, err := kvscheduler.ParseRef(v.Directory); err != nil {
		return fmt.Errorf("directory of %s: %w", v.Path, err)
	}
	return nil
}

// Create first lists the sockets: a second socket with the same path would get the clients of the first one.
func (b memifSockets) Create(ctx context.Context, batch []memifSocketItem) {
	there, err := b.read(ctx)
	if unread(batch, err) {
		return
	}
	var s steps
	for i := range batch {
		it := &batch[i]
		it.NewMeta = SocketID(it.Want.ID)
		if it.Err = inUse(there, it.Want); it.Err == nil && there[it.NewMeta] == "" {
			there[it.NewMeta] = it.Want.Path
			s.add(i,
				ask(fmt.Sprintf("memif_socket_filename_add_del_v2: %d %s", it.Want.ID, it.Want.Path),
					&memif.MemifSocketFilenameAddDelV2{
						IsAdd: true, SocketID: it.Want.ID, SocketFilename: it.Want.Path,
					}, &memif.MemifSocketFilenameAddDelV2Reply{}))
		}
	}
	take(ctx, b.c, &s, batch)
}

func inUse(there map[SocketID]string, v wire.MemifSocket) error {
	for id, p := range there {
		switch {
		case id == SocketID(v.ID) && p != v.Path:
			return kvscheduler.Refused(fmt.Errorf(
				"create memif socket %d at %s: the number is that of the socket at %s", v.ID, v.Path, p))
		case id != SocketID(v.ID) && p == v.Path:
			return kvscheduler.Refused(fmt.Errorf("create memif socket %d at %s: the path is that of socket %d", v.ID,
				v.Path, id))
		}
	}
	return nil
}

// Delete deletes the sockets that still have our paths. The dataplane refuses to delete a socket with memifs.
func (b memifSockets) Delete(ctx context.Context, batch []memifSocketItem) {
	there, err := b.read(ctx)
	if unread(batch, err) {
		return
	}
	var s steps
	closed := make([]string, len(batch)) // the path of each item, if its number still belongs to its socket
	for i, it := range batch {
		if p := there[it.Meta]; p != "" && (p == it.Have.Path || it.Have.Path == "") {
			closed[i] = p
			s.add(i,
				ask(fmt.Sprintf("memif_socket_filename_add_del_v2: delete %d %s", it.Meta, p),
					&memif.MemifSocketFilenameAddDelV2{
						SocketID: uint32(it.Meta),
					}, &memif.MemifSocketFilenameAddDelV2Reply{}).fineIf(api.INVALID_ARGUMENT))
		}
	}
	take(ctx, b.c, &s, batch)
	for i, p := range closed {
		if batch[i].Err == nil && p != "" && isBelow(p, b.c.options.Sockets) {
			batch[i].Err = removeSocketFile(p)
		}
	}
}

// removeSocketFile removes the file of a closed socket, which VPP leaves behind.
func removeSocketFile(p string) error {
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	if err == nil {
		err = os.Remove(p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove file of memif socket: %w", err)
	}
	return nil
}

// Dump lists the known sockets, and those below Weft's directory. A socket without its file has no path: the dataplane
// makes the file again only when the socket and its memifs are recreated.
func (b memifSockets) Dump(
	ctx context.Context, view kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.MemifSocket, SocketID], error] {
	listed := dumpSockets()
	memifs := dumpMemifs()
	if err := b.c.exchangeAll(ctx, []*request{listed, memifs}); err != nil {
		return yieldAll[wire.MemifSocket, SocketID](nil, err)
	}
	there := socketsIn(listed)
	served := map[SocketID]bool{}
	for _, m := range memifsIn(memifs) {
		served[SocketID(m.SocketID)] = true
	}
	known := knownSockets(view)
	taken := unique{}
	for id, p := range there {
		taken[known[wire.MemifSocket{ID: uint32(id), Path: p}]] = true
	}
	var found []kvscheduler.Actual[wire.MemifSocket, SocketID]
	for id, p := range there {
		v := wire.MemifSocket{ID: uint32(id), Path: p}
		name, isKnown := known[v]
		if !isKnown && !isBelow(p, b.c.options.Sockets) {
			continue
		}
		if !isKnown {
			name = taken.add(socketName(p), Index(id))
		}
		if served[id] && isGone(p) {
			v.Path = ""
		}
		found = append(found, kvscheduler.Actual[wire.MemifSocket, SocketID]{Name: name, V: v, Meta: id})
	}
	return yieldAll(found, nil)
}

// isGone reports whether the file of a socket is missing although its directory is visible.
func isGone(p string) bool {
	if _, err := os.Lstat(path.Dir(p)); err != nil {
		return false
	}
	_, err := os.Lstat(p)
	return errors.Is(err, fs.ErrNotExist)
}

// knownSockets returns the names of the known sockets by the fields that the dataplane has.
func knownSockets(view kvscheduler.View) map[wire.MemifSocket]string {
	known := map[wire.MemifSocket]string{}
	for name := range view.All(wire.KindMemifSocket) {
		applied, _, _ := view.Applied(ref(wire.KindMemifSocket, name))
		desired, _ := view.Desired(ref(wire.KindMemifSocket, name))
		for _, v := range []any{applied, desired} {
			if s, is := v.(wire.MemifSocket); is {
				s.Directory = ""
				known[s] = name
			}
		}
	}
	return known
}

// socketName is the name of a socket's directory, which is the name of the allocation.
func socketName(p string) string { return path.Base(path.Dir(p)) }

// read lists the paths of all sockets.
func (b memifSockets) read(ctx context.Context) (map[SocketID]string, error) {
	r := dumpSockets()
	if err := b.c.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	return socketsIn(r), nil
}

func dumpSockets() *request {
	return askAll(&memif.MemifSocketFilenameDump{}, &memif.MemifSocketFilenameDetails{})
}

func socketsIn(r *request) map[SocketID]string {
	return mapOf(r, func(d *memif.MemifSocketFilenameDetails) (SocketID, string) {
		return SocketID(d.SocketID), d.SocketFilename
	})
}
