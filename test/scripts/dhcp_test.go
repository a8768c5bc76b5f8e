package scripts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// dhcp holds a script's DHCP server in a sandbox, and the daemon of the IPAM plugin dhcp.
type dhcp struct {
	server *dhcpServer
	daemon *exec.Cmd
}

// dhcpCommand:
//
//	dhcp serve NAME            serve 10.9.0.2 and following on link net1 of the sandbox, which gets 10.9.0.1
//	dhcp router on|off         offer a default route, or do not
//	dhcp interrupt             before the next answer kill the agent, start it again, and wait until it is ready
//	dhcp held ADDRESS...       wait until exactly these addresses are leased
//	dhcp released N            check that the daemon has released N leases, each while its link existed; whether the release reaches
//	                           the server before the link is deleted depends on the machine
//	dhcp daemon start FLAG...  start Debian's daemon, which listens at $NODE/dhcp.sock
//	dhcp daemon stop           end it with SIGKILL
func dhcpCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	switch {
	case neg || len(args) == 0:
		usage(ts, "dhcp serve|router|interrupt|held|released|daemon ...")
	case args[0] == "daemon" && len(args) > 1 && args[1] == "start":
		ts.Check(s.startDaemon(args[2:]))
	case args[0] == "daemon" && len(args) == 2 && args[1] == "stop":
		ts.Check(s.endDaemon())
	case args[0] == "serve" && len(args) == 2 && s.dhcp.server == nil:
		server, err := startDHCP(s.sandbox(ts, args[1]).path, "net1")
		ts.Check(err)
		s.dhcp.server = server
	case s.dhcp.server == nil:
		ts.Fatalf("dhcp: no server is running")
	case args[0] == "router" && len(args) == 2:
		s.dhcp.server.set(func() { s.dhcp.server.router = args[1] == "on" })
	case args[0] == "interrupt" && len(args) == 1:
		s.dhcp.server.set(func() { s.dhcp.server.before = s.crashAgent })
	case args[0] == "released" && len(args) == 2:
		ts.Check(s.released(args[1]))
	case args[0] == "held":
		ts.Check(s.dhcp.server.await(args[1:]))
	default:
		usage(ts, "dhcp serve|router|interrupt|held|released|daemon ...")
	}
}

func (s *stage) crashAgent() error {
	return errors.Join(s.node.KillAgent(), s.startAgent(context.Background()))
}

// startDaemon starts the daemon and waits until it listens.
func (s *stage) startDaemon(flags []string) error {
	socket := filepath.Join(s.node.Dir, "dhcp.sock")
	cmd := exec.Command(filepath.Join(pluginsDir(), "dhcp"),
		append([]string{"daemon", "-socketpath", socket}, flags...)...)
	log, err := os.OpenFile(s.daemonLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.dhcp.daemon = cmd
	return eventually(timeout, func() error {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return fmt.Errorf("the daemon of dhcp does not listen: %w", err)
		}
		return conn.Close()
	})
}

func (s *stage) daemonLog() string { return filepath.Join(s.node.Dir, "dhcp.log") }

// released compares the number of releases in the daemon's log, which it writes before a DEL ends.
func (s *stage) released(want string) error {
	log, err := os.ReadFile(s.daemonLog())
	if err != nil {
		return err
	}
	done := bytes.Count(log, []byte(": releasing lease"))
	failed := bytes.Count(log, []byte("failed to release"))
	if got := strconv.Itoa(done); got != want || failed > 0 {
		return fmt.Errorf("%s leases were released, want %s; failures: %d", got, want, failed)
	}
	return nil
}

func (s *stage) endDaemon() error {
	cmd := s.dhcp.daemon
	if cmd == nil {
		return nil
	}
	s.dhcp.daemon = nil
	killed := cmd.Process.Kill()
	_ = cmd.Wait() // the signal ends it
	return errors.Join(killed, os.Remove(filepath.Join(s.node.Dir, "dhcp.sock")))
}

func (s *stage) endDHCP() error {
	err := s.endDaemon()
	if s.dhcp.server != nil {
		err = errors.Join(err, s.dhcp.server.close())
	}
	return err
}
