package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	vpptest "github.com/weftnet/weft/test/dataplane"
)

// timeout is the timeout of a program's start and end.
const timeout = 20 * time.Second

// dataplane is a weft-vswitch or a VPP that the benchmark started.
type dataplane struct {
	process process
	conn    *core.Connection
	dir     string
	version string
}

// process is the process of a dataplane.
type process interface {
	PID() int
	// Stop returns when the process is gone.
	Stop() error
}

// vswitch is a running weft-vswitch.
type vswitch struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Numbers of the memifs' socket and of the bridge domain.
const (
	socketID = 1
	bridgeID = 1
)

// startVSwitch starts a weft-vswitch with one worker and connects to its API.
func startVSwitch(ctx context.Context, program, dir string) (*dataplane, error) {
	log, err := os.Create(filepath.Join(dir, "vswitch.log"))
	if err != nil {
		return nil, fmt.Errorf("start weft-vswitch: %w", err)
	}
	defer log.Close()
	api := filepath.Join(dir, "api.sock")
	v := &vswitch{
		cmd:   exec.Command(program, "--api-socket", api, "--workers", "1", "--log-level", "warn"),
		ended: make(chan struct{}),
	}
	v.cmd.Stdout = log
	v.cmd.Stderr = log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for the benchmark only
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start weft-vswitch: %w", err)
	}
	go func() { defer close(v.ended); _ = v.cmd.Wait() }()
	if err := v.await(api); err != nil {
		return nil, errors.Join(err, v.Stop())
	}
	return newDataplane(ctx, v, api, dir)
}

// await waits for the API's socket.
func (v *vswitch) await(api string) error {
	deadline := time.After(timeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", api); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-v.ended:
			return fmt.Errorf("weft-vswitch ended: %s", v.cmd.ProcessState)
		case <-deadline:
			return fmt.Errorf("weft-vswitch is not ready after %s", timeout)
		}
	}
}

// PID returns the process id.
func (v *vswitch) PID() int { return v.cmd.Process.Pid }

// Stop ends the process and waits for it.
func (v *vswitch) Stop() error {
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.ended:
		return nil
	case <-time.After(timeout):
		_ = v.cmd.Process.Kill()
		<-v.ended
		return fmt.Errorf("weft-vswitch did not end within %s of SIGTERM and was killed", timeout)
	}
}

// startVPP starts the VPP of WEFT_VPP, which forwards on its main thread, and connects to its API.
func startVPP(ctx context.Context, dir string) (*dataplane, error) {
	vpp, err := vpptest.New(vpptest.Options{Polls: true, Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := vpp.Start(ctx); err != nil {
		return nil, errors.Join(err, vpp.Close())
	}
	return newDataplane(ctx, installed{vpp}, vpp.Socket(), dir)
}

// installed is a VPP with its shared memory.
type installed struct{ *vpptest.Dataplane }

// Stop ends the process and waits for it.
func (i installed) Stop() error { return i.Close() }

// newDataplane connects to the API of a process and makes a bridge domain and a socket for memifs. It stops the process
// after an error.
func newDataplane(ctx context.Context, p process, api, dir string) (*dataplane, error) {
	d := &dataplane{process: p, dir: dir}
	if err := d.configure(ctx, api); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *dataplane) configure(ctx context.Context, api string) (err error) {
	if d.conn, err = core.Connect(socketclient.NewVppClient(api)); err != nil {
		return fmt.Errorf("connect to the dataplane: %w", err)
	}
	version, err := vpe.NewServiceClient(d.conn).ShowVersion(ctx, &vpe.ShowVersion{})
	if err != nil {
		return fmt.Errorf("read the dataplane's version: %w", err)
	}
	d.version = version.Version
	if _, err := binapi.NewServiceClient(d.conn).MemifSocketFilenameAddDelV2(ctx,
		&binapi.MemifSocketFilenameAddDelV2{
			IsAdd:          true,
			SocketID:       socketID,
			SocketFilename: d.memifSocket(),
		}); err != nil {
		return fmt.Errorf("add the memifs' socket: %w", err)
	}
	if _, err := l2.NewServiceClient(d.conn).BridgeDomainAddDelV2(ctx, &l2.BridgeDomainAddDelV2{
		IsAdd: true,
		BdID:  bridgeID,
		Learn: true, Forward: true, Flood: true, UuFlood: true,
	}); err != nil {
		return fmt.Errorf("make a bridge domain: %w", err)
	}
	return nil
}

func (d *dataplane) memifSocket() string { return filepath.Join(d.dir, "memif.sock") }

// stop ends the process and waits for it.
func (d *dataplane) stop() error {
	if d.conn != nil {
		d.conn.Disconnect()
	}
	return d.process.Stop()
}

// drops returns the dataplane's counters of dropped packets.
func (d *dataplane) drops(ctx context.Context) string {
	reply, err := vlib.NewServiceClient(d.conn).CliInband(ctx, &vlib.CliInband{Cmd: "show errors"})
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(reply.Reply), " ")
}

// pid returns the process id.
func (d *dataplane) pid() int { return d.process.PID() }

// addMemif makes a memif and sets it up.
func (d *dataplane) addMemif(ctx context.Context, id uint32) (interface_types.InterfaceIndex, error) {
	reply, err := binapi.NewServiceClient(d.conn).MemifCreateV2(ctx, &binapi.MemifCreateV2{
		SocketID: socketID,
		ID:       id,
		HwAddr:   own,
	})
	if err != nil {
		return 0, fmt.Errorf("make memif %d: %w", id, err)
	}
	if _, err := interfaces.NewServiceClient(d.conn).SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{
		SwIfIndex: reply.SwIfIndex, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}); err != nil {
		return 0, fmt.Errorf("set memif %d up: %w", id, err)
	}
	return reply.SwIfIndex, nil
}

func (d *dataplane) deleteMemif(ctx context.Context, index interface_types.InterfaceIndex) error {
	if _, err := binapi.NewServiceClient(d.conn).MemifDelete(ctx, &binapi.MemifDelete{SwIfIndex: index}); err != nil {
		return fmt.Errorf("delete a memif: %w", err)
	}
	return nil
}
