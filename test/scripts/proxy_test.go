package scripts_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/refuse"
)

// proxyCommand: proxy starts a dataplane with a proxy that can refuse requests; an agent that starts afterwards
// connects to the proxy. proxy cut drops its connections, as if the dataplane had died.
func proxyCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	switch {
	case !neg && len(args) == 0 && s.proxy == nil:
		ts.Check(s.startProxy())
	case !neg && len(args) == 1 && args[0] == "cut":
		s.proxied(ts).Cut()
	default:
		usage(ts, "proxy, then proxy cut")
	}
}

func (s *stage) startProxy() error {
	if err := s.startDataplane(); err != nil {
		return err
	}
	err := eventually(timeout, func() error {
		if s.node.DataplanePID() == 0 {
			return errors.New("the dataplane does not answer")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.proxy, err = refuse.Listen(s.proxySocket(), s.node.DataplaneSocket())
	return err
}

// startDataplane starts a dataplane that keeps running when the agent exits.
func (s *stage) startDataplane() error {
	if dataplane.Prefix() != "" {
		return netns.Do(s.home, s.node.StartVPP)
	}
	log, err := os.OpenFile(s.node.DataplaneLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.dataplane = exec.Command(s.node.Program("weft-vswitch"), "--api-socket", s.node.DataplaneSocket())
	s.dataplane.Stdout = log
	s.dataplane.Stderr = log
	return netns.Do(s.home, s.dataplane.Start)
}

func (s *stage) proxySocket() string { return filepath.Join(s.node.Dir, "proxy.sock") }

// proxyFlags are the agent's flags for the proxy: a dataplane that another component runs.
func (s *stage) proxyFlags() []string {
	if s.proxy == nil {
		return nil
	}
	return []string{"--dataplane-type", "vpp", "--dataplane-socket", s.proxySocket()}
}

func (s *stage) endProxy() error {
	var errs []error
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.dataplane == nil {
		return errors.Join(errs...)
	}
	errs = append(errs, s.dataplane.Process.Signal(unix.SIGTERM))
	return errors.Join(append(errs, s.dataplane.Wait())...)
}

func (s *stage) proxied(ts *testscript.TestScript) *refuse.Proxy {
	if s.proxy == nil {
		ts.Fatalf("this script has no proxy")
	}
	return s.proxy
}

// refuseCommand: refuse MESSAGE RETVAL TIMES makes the dataplane refuse the next requests with that message.
func refuseCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		usage(ts, "refuse MESSAGE RETVAL TIMES")
	}
	retval, err := strconv.ParseInt(args[1], 10, 32)
	ts.Check(err)
	on(ts).proxied(ts).Refuse(message(args[0]), int32(retval), times(ts, args[2]))
}

// hangCommand: hang MESSAGE TIMES drops the next requests with that message.
func hangCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "hang MESSAGE TIMES")
	}
	on(ts).proxied(ts).Hang(message(args[0]), times(ts, args[1]))
}

// loseCommand: lose MESSAGE TIMES drops the replies to the next requests with that message.
func loseCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "lose MESSAGE TIMES")
	}
	on(ts).proxied(ts).Lose(message(args[0]), times(ts, args[1]))
}

// awaitCommand: await MESSAGE waits until a request was refused or dropped, or its reply was dropped.
func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "await MESSAGE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ts.Check(on(ts).proxied(ts).Met(ctx, message(args[0])))
}

// message returns the name of an API message. Scripts name the creation of a tap; on dataplanes without taps it is a
// veth's.
func message(name string) string {
	if name == "tap_create_v3" && !dataplane.HasTaps() {
		return "af_packet_create_v3"
	}
	return name
}

func times(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}
