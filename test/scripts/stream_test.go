package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/ping"
)

// stream sends echo requests until it is stopped.
type stream struct {
	pinger *ping.Pinger
	cancel context.CancelFunc
	done   chan struct{}
	loss   ping.Loss
	err    error
}

// streamInterval: a hundred requests per second. A stream runs for calm before and after the script's commands.
const (
	streamInterval = 10 * time.Millisecond
	calm           = 300 * time.Millisecond
)

// streamCommand:
//
//	stream start FROM TO   start to send a hundred echo requests a second to TO's first address
//	stream stop            end it, and print the number of lost requests
func streamCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	switch {
	case !neg && len(args) == 3 && args[0] == "start" && s.stream == nil:
		addresses, err := s.addresses(args[2])
		ts.Check(err)
		ts.Check(s.startStream(s.netns(ts, args[1]), addresses[0]))
		<-time.After(calm)
	case !neg && len(args) == 1 && args[0] == "stop" && s.stream != nil:
		<-time.After(calm)
		loss := s.stream
		ts.Check(s.endStream())
		_, _ = fmt.Fprintln(ts.Stdout(), loss.loss)
	default:
		usage(ts, "stream start FROM TO, then stream stop")
	}
}

func (s *stage) startStream(from string, to netip.Addr) error {
	p, err := ping.Open(from, to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	st := &stream{pinger: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(st.done)
		st.loss, st.err = p.Stream(ctx, to, streamInterval)
	}()
	s.stream = st
	return nil
}

func (s *stage) endStream() error {
	st := s.stream
	if st == nil {
		return nil
	}
	s.stream = nil
	st.cancel()
	<-st.done
	return errors.Join(st.err, st.pinger.Close())
}
