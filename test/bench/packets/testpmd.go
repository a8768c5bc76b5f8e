package packets

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/peers"
)

// testpmd is a process of DPDK's testpmd with one forwarding thread that reads commands from its standard input.
type testpmd struct {
	cmd      *exec.Cmd
	commands io.WriteCloser
	lines    chan string // its output
	ports    int
}

// role is the task of a testpmd.
type role struct {
	name      string // unique
	processor int    // of its forwarding thread
	ports     []string
	arguments []string
	dir       string
}

// startTestpmd starts a testpmd that does not forward yet, with line-buffered output.
func startTestpmd(ctx context.Context, p peers.Program, r role) (*testpmd, error) {
	arguments := []string{
		"--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--file-prefix",
		fmt.Sprintf("weft%d%s", os.Getpid(), r.name),
		"--lcores", fmt.Sprintf("0@(0-1),1@%d", r.processor),
	}
	for i, options := range r.ports {
		arguments = append(arguments, "--vdev",
			fmt.Sprintf("net_memif%d,socket-abstract=no,bsize=2048,rsize=10,%s", i, options))
	}
	arguments = append(arguments, "--", "-i", "--total-num-mbufs=8192", "--mbcache=512", "--burst=256",
		"--no-lsc-interrupt", "--nb-cores=1")
	cmd := p.Command(ctx, append(arguments, r.arguments...)...)
	unbuffered, err := exec.LookPath("stdbuf")
	if err != nil {
		return nil, fmt.Errorf("read the output of testpmd: %w", err)
	}
	cmd.Path = unbuffered
	cmd.Args = append([]string{"stdbuf", "-oL", p.Path}, cmd.Args[1:]...)
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+r.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	t := &testpmd{cmd: cmd, lines: make(chan string, 4096), ports: len(r.ports)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start testpmd: %w", err)
	}
	if t.commands, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start testpmd: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start testpmd: %w", err)
	}
	go t.read(out)
	// Then it waits for the link, which takes long for a server; it reads commands afterwards.
	if _, err := t.next("Checking link statuses", time.After(timeout)); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

func (t *testpmd) read(out io.Reader) {
	defer close(t.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		t.lines <- s.Text()
	}
}

// do sends commands.
func (t *testpmd) do(commands ...string) error {
	_, err := io.WriteString(t.commands, strings.Join(commands, "\n")+"\n")
	return err
}

var errTestpmd = errors.New("testpmd does not answer")

// next reads lines until one has the prefix.
func (t *testpmd) next(beginning string, deadline <-chan time.Time) (string, error) {
	for {
		select {
		case line, ok := <-t.lines:
			if !ok {
				return "", fmt.Errorf("%w: it ended", errTestpmd)
			}
			if line = strings.TrimSpace(line); strings.HasPrefix(line, beginning) {
				return line, nil
			}
		case <-deadline:
			return "", errTestpmd
		}
	}
}

// traffic is the sum of all ports' received and sent packets.
type traffic struct{ received, sent uint64 }

// traffic reads the counters of all ports.
func (t *testpmd) traffic() (sum traffic, err error) {
	if err := t.do("show port stats all"); err != nil {
		return sum, fmt.Errorf("%w: %w", errTestpmd, err)
	}
	deadline := time.After(timeout)
	for range t.ports {
		// The statistics after a stop look similar.
		if _, err := t.next("######################## NIC statistics", deadline); err != nil {
			return sum, err
		}
		for _, c := range []struct {
			name string
			to   *uint64
		}{{"RX-packets:", &sum.received}, {"TX-packets:", &sum.sent}} {
			line, err := t.next(c.name, deadline)
			if err != nil {
				return sum, err
			}
			n, err := strconv.ParseUint(strings.Fields(line)[1], 10, 64)
			if err != nil {
				return sum, fmt.Errorf("read testpmd's %s: %w", c.name, err)
			}
			*c.to += n
		}
	}
	return sum, nil
}

// flows waits until packets arrive continuously.
func (t *testpmd) flows(ctx context.Context) error {
	var last traffic
	for deadline, seen := time.Now().Add(timeout), 0; seen < 4; {
		now, err := t.traffic()
		if err != nil {
			return err
		}
		if now.received > last.received {
			seen++
		}
		if last = now; time.Now().After(deadline) {
			return fmt.Errorf("%w: nothing arrives", errTestpmd)
		}
		if err := await(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the process. Its exit status is ignored, because either end of DPDK's memif may crash after the other.
func (t *testpmd) stop() {
	_ = t.do("quit")
	_ = t.commands.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	for range t.lines {
		continue // until the end of its output
	}
	_ = t.cmd.Wait()
}
