package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/dataplane"
)

// vpp is the VPP of a node whose tests run on VPP (WEFT_VPP). It is restarted whenever it ends, as by its DaemonSet.
type vpp struct {
	*dataplane.Dataplane
	started bool
	closing chan struct{}
	done    sync.WaitGroup
	err     error // of the supervisor; read after done
}

// prepareVPP prepares a VPP in a directory of its own if tests run on VPP.
func (n *Node) prepareVPP() error {
	if dataplane.Prefix() == "" || n.options.Embedded {
		return nil
	}
	dir := filepath.Join(n.Dir, "vpp")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the node's directory: %w", err)
	}
	d, err := dataplane.New(dataplane.Options{Dir: dir, Netns: n.options.Netns})
	n.vpp = &vpp{Dataplane: d, closing: make(chan struct{})}
	return err
}

// StartVPP starts the node's VPP and its supervisor, once, if tests run on VPP. Starting the agent does it too.
func (n *Node) StartVPP() error {
	if n.vpp == nil || n.vpp.started {
		return nil
	}
	n.vpp.started = true
	if err := n.vpp.Start(context.Background()); err != nil {
		return err
	}
	n.vpp.done.Go(n.vpp.supervise)
	return nil
}

func (v *vpp) supervise() {
	for {
		select {
		case <-v.closing:
			v.err = v.Close()
			return
		case <-v.Ended():
		}
		select {
		case <-v.closing:
		default:
			if v.err = v.Start(context.Background()); v.err != nil {
				return
			}
		}
	}
}

// end stops VPP and its supervisor.
func (v *vpp) end() error {
	if !v.started {
		return v.Close()
	}
	select {
	case <-v.closing:
	default:
		close(v.closing)
	}
	v.done.Wait()
	return v.err
}

// StatsSocket returns the path of the stats segment's socket.
func (n *Node) StatsSocket() string {
	if n.vpp != nil {
		return n.vpp.StatsSocket()
	}
	return filepath.Join(n.run(), "vswitch-stats.sock")
}

// DataplanePID returns the process that listens on the dataplane's socket; 0 = none.
func (n *Node) DataplanePID() int {
	conn, err := net.Dial("unix", n.DataplaneSocket())
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// KillDataplane ends the dataplane with SIGKILL and waits for it. The agent, or VPP's supervisor, starts another.
func (n *Node) KillDataplane() error {
	pid := n.DataplanePID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the dataplane: %w", err)
	}
	if n.vpp == nil {
		_, _ = unix.Wait4(pid, nil, 0, nil) // ECHILD while the agent is its parent
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for alive(pid) {
		select {
		case <-deadline.C:
			return fmt.Errorf("the killed dataplane %d exists after %s", pid, timeout)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// endDataplane ends the dataplane, which becomes a child of this process when the agent has exited.
func (n *Node) endDataplane(signal syscall.Signal) error {
	if n.vpp != nil {
		return n.vpp.end()
	}
	pid := n.DataplanePID()
	if pid == 0 {
		return nil
	}
	_ = unix.Kill(pid, signal)
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid ||
			errors.Is(err, unix.ECHILD) && !alive(pid) {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
			return fmt.Errorf("the dataplane did not end within %s of %s and was killed", timeout,
				unix.SignalName(signal))
		}
	}
}

func alive(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", fmt.Sprint(pid)))
	return err == nil
}
