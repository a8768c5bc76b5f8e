package vpp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/span"

	"github.com/weftnet/weft/internal/privatedir"
	"github.com/weftnet/weft/wire"
)

// ErrNoInterface means that the dataplane has no interface of that name.
var ErrNoInterface = errors.New("the dataplane has no such interface")

// Directions selects the frames of a capture, as seen by the dataplane: FromPod are those that it receives.
type Directions struct{ FromPod, ToPod bool }

func (d Directions) state() span.SpanState {
	switch {
	case d.FromPod && d.ToPod:
		return span.SPAN_STATE_API_RX_TX
	case d.FromPod:
		return span.SPAN_STATE_API_RX
	}
	return span.SPAN_STATE_API_TX
}

// Capture is a mirror of an interface to a memif of its own, which the agent connects to:
//
//	opened --Start--> mirroring --Close--> gone
//	   \---------------Close--------------/
//
// Its objects are temporary and no objects of the scheduler. Their mark is the memif's socket, in a private directory:
// after the end of an agent that could not close them, the next connection to the dataplane removes them
// (pruneCaptures).
type Capture struct {
	Socket string // path; the memif's id is 0
	Bare   bool   // frames begin with the IP header

	client *Client
	from   *interfaces.SwInterfaceDetails
	to     Index
}

// captureDirectory is the directory of the sockets of captures.
func (o *Options) captureDirectory() string {
	return filepath.Join(cmp.Or(o.RunDir, os.TempDir()), "captures")
}

// OpenCapture creates the memif of a capture of an interface, by the name of its vpp.interface. The error wraps
// ErrNoInterface if there is no such interface.
func (c *Client) OpenCapture(ctx context.Context, name string) (*Capture, error) {
	p, err := c.ports(ctx)
	if err != nil {
		return nil, err
	}
	from := p.byName[name]
	if from == nil {
		return nil, fmt.Errorf("capture %s: %w", name, ErrNoInterface)
	}
	directory := c.options.captureDirectory()
	if err := privatedir.Make(directory); err != nil {
		return nil, fmt.Errorf("directory of captures: %w", err)
	}
	v := p.value(from)
	k := &Capture{Socket: filepath.Join(directory, rand.Text()+".sock"), client: c, from: from,
		Bare: v.Type == wire.TypeMemif && v.Memif.Mode == wire.MemifIP}
	if err := k.open(ctx, name); err != nil {
		return nil, errors.Join(err, k.Close(context.WithoutCancel(ctx)))
	}
	return k, nil
}

func (k *Capture) open(ctx context.Context, name string) error {
	socket := &memif.MemifSocketFilenameAddDelV2Reply{}
	if err := k.client.exchangeAll(ctx, []*request{ask("create socket of capture", &memif.MemifSocketFilenameAddDelV2{
		IsAdd: true, SocketID: ^uint32(0), SocketFilename: k.Socket,
	}, socket)}); err != nil {
		return err
	}
	created := &memif.MemifCreateV2Reply{}
	if err := k.client.exchangeAll(ctx, []*request{ask("create memif of capture", &memif.MemifCreateV2{
		Role: memif.MEMIF_ROLE_API_MASTER, Mode: memif.MEMIF_MODE_API_ETHERNET, SocketID: socket.SocketID,
		RxQueues: 1, TxQueues: 1, RingSize: maxRing, BufferSize: 2048, NoZeroCopy: true,
	}, created)}); err != nil {
		return err
	}
	k.to = Index(created.SwIfIndex)
	tag := "capture of " + name
	return k.client.exchangeAll(ctx, []*request{
		ask("tag memif of capture", &interfaces.SwInterfaceTagAddDel{
			IsAdd:     true,
			SwIfIndex: k.to.api(),
			Tag:       tag[:min(len(tag), 63)],
		},
			&interfaces.SwInterfaceTagAddDelReply{}),
		ask("set memif of capture up", &interfaces.SwInterfaceSetFlags{
			SwIfIndex: k.to.api(),
			Flags:     interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
		},
			&interfaces.SwInterfaceSetFlagsReply{}),
	})
}

// Start mirrors the interface to the memif.
func (k *Capture) Start(ctx context.Context, d Directions) error {
	return k.client.exchangeAll(ctx, []*request{ask("mirror "+k.from.InterfaceName, &span.SwInterfaceSpanEnableDisable{
		SwIfIndexFrom: k.from.SwIfIndex, SwIfIndexTo: k.to.api(), State: d.state(),
	}, &span.SwInterfaceSpanEnableDisableReply{})})
}

// Stop ends the mirror.
func (k *Capture) Stop(ctx context.Context) error {
	return k.client.exchangeAll(ctx, []*request{
		ask("end mirror of "+k.from.InterfaceName, &span.SwInterfaceSpanEnableDisable{
			SwIfIndexFrom: k.from.SwIfIndex, SwIfIndexTo: k.to.api(),
		}, &span.SwInterfaceSpanEnableDisableReply{}).fineIf(api.INVALID_SW_IF_INDEX),
	})
}

// Check returns an error, which wraps ErrNoInterface, if the captured interface is gone or replaced.
func (k *Capture) Check(ctx context.Context) error {
	r := askAll(&interfaces.SwInterfaceDump{SwIfIndex: k.from.SwIfIndex}, &interfaces.SwInterfaceDetails{})
	if err := k.client.exchangeAll(ctx, []*request{r}); err != nil {
		return err
	}
	for _, d := range listOf[*interfaces.SwInterfaceDetails](r) {
		if d.SwIfIndex == k.from.SwIfIndex && d.InterfaceName == k.from.InterfaceName && d.Tag == k.from.Tag {
			return nil
		}
	}
	return ErrNoInterface
}

// Close ends the mirror and removes the objects. It may be called again after an error.
func (k *Capture) Close(ctx context.Context) error {
	return removeCaptures(ctx, k.client.exchangeAll, func(socket string) bool { return socket == k.Socket })
}

// pruneTime bounds the search for captures of an earlier agent: pods wait for the connection.
const pruneTime = time.Second

// pruneCaptures removes the objects of captures of an agent that has ended, or of a broken connection.
func (o *Options) pruneCaptures(ctx context.Context, exchange exchangeAll) error {
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	return removeCaptures(ctx, exchange, func(socket string) bool { return isBelow(socket, o.captureDirectory()) })
}

// removeCaptures removes the captures with certain sockets. It reads the dataplane first: an index may belong to
// another interface by now. Mirrors are removed before their targets, because VPP keeps a mirror to the index of a
// deleted interface.
func removeCaptures(ctx context.Context, exchange exchangeAll, chosen func(socket string) bool) error {
	listed := dumpSockets()
	memifs := dumpMemifs()
	if err := exchange(ctx, []*request{listed, memifs}); err != nil {
		return fmt.Errorf("list captures: %w", err)
	}
	sockets := socketsIn(listed)
	var mirrors, targets, files []*request
	var paths []string
	found := map[Index]bool{}
	for i, m := range memifsIn(memifs) {
		if chosen(sockets[SocketID(m.SocketID)]) {
			found[i] = true
			targets = append(targets, deleteMemif("of capture", i))
		}
	}
	for id, path := range sockets {
		if chosen(path) {
			paths = append(paths, path)
			files = append(files,
				ask("delete socket of capture", &memif.MemifSocketFilenameAddDelV2{SocketID: uint32(id)},
					&memif.MemifSocketFilenameAddDelV2Reply{}).fineIf(api.INVALID_ARGUMENT))
		}
	}
	if len(found) > 0 {
		spans := askAll(&span.SwInterfaceSpanDump{}, &span.SwInterfaceSpanDetails{})
		if err := exchange(ctx, []*request{spans}); err != nil && !errors.As(err, new(*MissingMessage)) {
			return fmt.Errorf("list mirrors: %w", err)
		}
		for _, d := range listOf[*span.SwInterfaceSpanDetails](spans) {
			if found[Index(d.SwIfIndexTo)] {
				mirrors = append(mirrors,
					ask("end mirror", &span.SwInterfaceSpanEnableDisable{
						SwIfIndexFrom: d.SwIfIndexFrom,
						SwIfIndexTo:   d.SwIfIndexTo,
					},
						&span.SwInterfaceSpanEnableDisableReply{}).fineIf(api.INVALID_SW_IF_INDEX))
			}
		}
	}
	for _, step := range [][]*request{mirrors, targets, files} {
		if err := exchange(ctx, step); err != nil {
			return fmt.Errorf("remove capture: %w", err)
		}
	}
	var errs []error
	for _, path := range slices.Sorted(slices.Values(paths)) {
		errs = append(errs, removeSocketFile(path))
	}
	return errors.Join(errs...)
}

// Lost returns the number of frames that had no room in the memif. It is up to a second old with weft-vswitch.
func (k *Capture) Lost(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, k.client.options.Limit)
	defer cancel()
	counted, err := k.client.stats.read(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrStats, err)
	}
	return counted.simpleOf(k.to, "tx-error"), nil
}
