package traffic

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Path leads from a network namespace to an address of another.
type Path struct {
	From     string // path of the sender's namespace; "" is the caller's own
	FromLink string // link of the sender; "" = chosen by its routes
	To       string // path of the receiver's namespace
	Address  netip.Addr
}

// Receipt describes the received data of a connection.
type Receipt struct {
	Bytes int64
	Took  time.Duration     // from the start of the connection to its end
	Sum   [sha256.Size]byte // SHA-256 of the bytes, of Transfer only
}

// Gigabits returns the rate in Gbit/s.
func (r Receipt) Gigabits() float64 { return float64(r.Bytes) * 8 / r.Took.Seconds() / 1e9 }

// chunk is the size of reads and writes, large enough to hide the cost of system calls.
const chunk = 1 << 20

// connectTime is the timeout of a connection's establishment.
const connectTime = 20 * time.Second

// Transfer sends data over TCP and describes the received data.
func Transfer(ctx context.Context, p Path, data []byte) (Receipt, error) {
	arrived := make([]byte, 0, len(data)+1) // one more, to notice excess data
	r, err := p.connection(ctx,
		func(w io.Writer) error { _, err := w.Write(data); return err },
		func(r io.Reader) (int64, error) {
			for len(arrived) < cap(arrived) {
				n, err := r.Read(arrived[len(arrived):min(cap(arrived), len(arrived)+chunk)])
				arrived = arrived[:len(arrived)+n]
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return int64(len(arrived)), err
				}
			}
			return int64(len(arrived)), nil
		})
	r.Sum = sha256.Sum256(arrived)
	return r, err
}

// Stream sends as much as possible over TCP for the duration, and describes the received data.
func Stream(ctx context.Context, p Path, duration time.Duration) (Receipt, error) {
	return p.connection(ctx,
		func(w io.Writer) error {
			data := make([]byte, chunk)
			for begun := time.Now(); time.Since(begun) < duration; {
				if _, err := w.Write(data); err != nil {
					return err
				}
			}
			return nil
		},
		func(r io.Reader) (int64, error) {
			return io.CopyBuffer(discard{io.Discard}, plain{r}, make([]byte, chunk))
		})
}

// discard and plain hide the methods with which io.CopyBuffer would avoid the buffer.
type (
	discard struct{ io.Writer }
	plain   struct{ io.Reader }
)

// connection runs send on one end of a connection and receive on the other.
func (p Path) connection(
	ctx context.Context, send func(io.Writer) error, receive func(io.Reader) (int64, error),
) (r Receipt, err error) {
	listener, err := p.listen(ctx)
	if err != nil {
		return r, err
	}
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			r.Bytes, err = receive(c)
			err = errors.Join(err, c.Close())
		}
		received <- err
	}()
	begun := time.Now()
	sent := p.send(ctx, listener.Addr().String(), send)
	if sent != nil {
		_ = listener.Close() // ends Accept
	}
	err = errors.Join(sent, <-received)
	r.Took = time.Since(begun)
	if err != nil {
		return r, fmt.Errorf("TCP to %s: %w", p.Address, err)
	}
	return r, nil
}

func (p Path) listen(ctx context.Context) (l net.Listener, err error) {
	err = Inside(p.To, func() (err error) {
		l, err = Listener("").Listen(ctx, "tcp", netip.AddrPortFrom(p.Address, 0).String())
		return err
	})
	return l, err
}

// send connects and calls f with the connection.
func (p Path) send(ctx context.Context, to string, f func(io.Writer) error) error {
	var c net.Conn
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	err := Inside(p.From, func() (err error) {
		c, err = Dialer(p.FromLink).DialContext(ctx, "tcp", to)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return errors.Join(err, c.Close())
	}
	return errors.Join(f(c), c.Close())
}

// timeout is the timeout of a connection.
const timeout = 60 * time.Second
