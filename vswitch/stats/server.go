package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/retry"
)

// Interval is the time between two collections.
const Interval = time.Second

// sendTimeout bounds the write to a client. In practice the write never blocks: one message always fits into the
// socket.
const sendTimeout = time.Second

const acceptPause = 100 * time.Millisecond

// Server publishes the counters of Source.
type Server struct {
	Source   func() Reading
	Interval time.Duration // between two collections; 0 means Interval
	Log      *slog.Logger
}

// Serve collects counters and sends the segment to each client that connects to l, a unixpacket listener, until ctx
// ends. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	segment, err := NewSegment()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.collect(ctx, segment) })
	g.Go(func() error { return s.accept(ctx, l, segment) })
	g.Go(func() error {
		<-ctx.Done()
		return l.Close()
	})
	return errors.Join(g.Wait(), segment.Close())
}

func (s *Server) collect(ctx context.Context, segment *Segment) error {
	interval := s.Interval
	if interval <= 0 {
		interval = Interval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failed := false
	for {
		reading := s.Source()
		err := segment.Update(&reading)
		if err != nil && !failed {
			s.Log.Warn("counters not published", "err", err)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Server) accept(ctx context.Context, l net.Listener, segment *Segment) error {
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				err = conn.Close()
			}
			return ignoreClosed(err)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ECONNABORTED):
			_ = retry.Pause(ctx, acceptPause) // until there are file descriptors again
			continue
		case err != nil:
			return fmt.Errorf("accept stats client: %w", err)
		}
		if err := segment.send(conn); err != nil {
			s.Log.Debug("stats segment not sent", "err", err)
		}
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// send sends the segment's descriptor to a client and closes the connection, as the protocol asks.
func (s *Segment) send(conn net.Conn) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T cannot pass file descriptors", conn)
	}
	_, _, err := unixConn.WriteMsgUnix(nil, unix.UnixRights(int(s.file.Fd())), nil)
	return err
}
