package packets

import (
	"context"
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
	"go.fd.io/govpp/core"
)

// patience is how long a program may take to be ready, or to end.
const patience = 20 * time.Second

// dataplane is a weft-vswitch of the benchmark's own.
type dataplane struct {
	cmd   *exec.Cmd
	ended chan struct{}
	conn  *core.Connection
	dir   string
}

// The number of the memifs' socket, and of the bridge domain.
const (
	socketID = 1
	bridgeID = 1
)

// startDataplane starts it, connects to its API and makes a bridge domain and a socket for memifs.
func startDataplane(ctx context.Context, program, dir string) (*dataplane, error) {
	d := &dataplane{dir: dir, ended: make(chan struct{})}
	log, err := os.Create(filepath.Join(dir, "vswitch.log"))
	if err != nil {
		return nil, fmt.Errorf("start the dataplane: %w", err)
	}
	defer log.Close()
	api := filepath.Join(dir, "api.sock")
	d.cmd = exec.Command(program, "--api-socket", api, "--workers", "1", "--log-level", "warn")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for us alone
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the dataplane: %w", err)
	}
	go func() { defer close(d.ended); _ = d.cmd.Wait() }()
	if err := d.connect(ctx, api); err != nil {
		_ = d.stop()
		return nil, err
	}
	return d, nil
}

func (d *dataplane) connect(ctx context.Context, api string) error {
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", api); err == nil {
			_ = c.Close()
			break
		}
		select {
		case <-tick.C:
		case <-d.ended:
			return fmt.Errorf("the dataplane ended: %s", d.cmd.ProcessState)
		case <-deadline:
			return fmt.Errorf("the dataplane is not ready after %s", patience)
		}
	}
	var err error
	if d.conn, err = core.Connect(socketclient.NewVppClient(api)); err != nil {
		return fmt.Errorf("connect to the dataplane: %w", err)
	}
	if _, err := binapi.NewServiceClient(d.conn).MemifSocketFilenameAddDelV2(ctx,
		&binapi.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: socketID, SocketFilename: d.memifSocket()}); err != nil {
		return fmt.Errorf("name the memifs' socket: %w", err)
	}
	if _, err := l2.NewServiceClient(d.conn).BridgeDomainAddDelV2(ctx, &l2.BridgeDomainAddDelV2{IsAdd: true, BdID: bridgeID,
		Learn: true, Forward: true, Flood: true, UuFlood: true}); err != nil {
		return fmt.Errorf("make a bridge domain: %w", err)
	}
	return nil
}

func (d *dataplane) memifSocket() string { return filepath.Join(d.dir, "memif.sock") }

// stop ends it and returns when it is gone.
func (d *dataplane) stop() error {
	if d.conn != nil {
		d.conn.Disconnect()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("the dataplane did not end within %s of SIGTERM and was killed", patience)
	}
}

// drops is what it says of packets that it dropped.
func (d *dataplane) drops(ctx context.Context) string {
	reply, err := vlib.NewServiceClient(d.conn).CliInband(ctx, &vlib.CliInband{Cmd: "show errors"})
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(reply.Reply), " ")
}

// pid is its process.
func (d *dataplane) pid() int { return d.cmd.Process.Pid }

// addMemif makes one that is up.
func (d *dataplane) addMemif(ctx context.Context, id uint32) (interface_types.InterfaceIndex, error) {
	reply, err := binapi.NewServiceClient(d.conn).MemifCreateV2(ctx, &binapi.MemifCreateV2{SocketID: socketID, ID: id, HwAddr: own})
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
