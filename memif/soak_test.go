package memif

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// victimArgument makes this program one that is killed. It sends back each packet of a memif.
const victimArgument = "memif-victim"

// listenVariable makes the victim the server.
const listenVariable = "WEFT_TEST_LISTEN"

// victim echoes until it is killed.
func victim() error {
	c, err := Dial(context.Background(),
		ClientConfig{Socket: os.Getenv(SocketVariable), ID: 1, Listen: os.Getenv(listenVariable) != ""}, ClientEvents{})
	if err != nil {
		return err
	}
	for b := make([]byte, DefaultMaxPacket); ; {
		n, err := c.ReadPacket(context.Background(), b)
		if err != nil {
			return err
		}
		if err := c.WritePacket(context.Background(), b[:n]); err != nil && !errors.Is(err, ErrNotConnected) {
			return err
		}
	}
}

// startVictim starts a victim. kill kills it, and waits for its end.
func startVictim(t *testing.T, variables ...string) (kill func()) {
	t.Helper()
	p := exec.CommandContext(t.Context(), "/proc/self/exe", victimArgument)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.Env = variables
	p.Stderr = t.Output()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

// killsVariable is the number of kills of the long form, of all kinds together.
const killsVariable = "WEFT_MEMIF_KILLS"

// killAges returns the ages at which victims are killed: by default one at its start, and one above the deadlines of
// control messages. In the long form they are up to a minute.
func killAges(t *testing.T, kinds int) (ages []time.Duration) {
	t.Helper()
	text := os.Getenv(killsVariable)
	if text == "" {
		return []time.Duration{time.Duration(rand.Int64N(int64(100 * time.Millisecond))), sendTimeout + time.Second/2}
	}
	kills, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", killsVariable, err)
	}
	for range kills / kinds {
		ages = append(ages, time.Duration(rand.Int64N(int64(time.Minute))))
	}
	return ages
}

// A program is killed at any age, and the next one forwards packets.
func TestSuccessorOfAKilledProgramEchoes(t *testing.T) {
	kinds := map[string]func(t *testing.T) (p echoed, variables []string){
		"client, with a broker":    func(t *testing.T) (echoed, []string) { return servedVictim(t, newBroker(t)) },
		"client, without a broker": func(t *testing.T) (echoed, []string) { return servedVictim(t, nil) },
		"server":                   servingVictim,
		"server, by a splice":      splicedVictim,
	}
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, variables := start(t)
			var longest time.Duration
			ages := killAges(t, len(kinds))
			for _, age := range ages {
				kill := startVictim(t, variables...)
				<-time.After(age)
				kill()
				kill = startVictim(t, variables...)
				began := time.Now()
				p.echoes(t)
				longest = max(longest, time.Since(began))
				kill()
			}
			t.Logf("%d killed at %s; the next one echoed after at most %s", len(ages), ages, longest)
		})
	}
}

// echoed is the end of a memif that stays.
type echoed struct {
	write func([]byte) error
	read  func(context.Context, []byte) (int, error)
}

// echoes sends packets until one comes back.
func (p echoed) echoes(t *testing.T) {
	t.Helper()
	want := bytes.Repeat([]byte{byte(rand.Int())}, 100)
	got := make([]byte, DefaultMaxPacket)
	eventually(t, "a packet of the next program", func() bool {
		_ = p.write(want)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		n, err := p.read(ctx, got)
		return err == nil && bytes.Equal(got[:n], want)
	})
}

// clientOf returns the staying end of a Client.
func clientOf(t *testing.T, c ClientConfig) echoed {
	t.Helper()
	connected := make(chan *Client, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		client, _ := Dial(ctx, c, ClientEvents{})
		connected <- client
	}()
	var client *Client
	t.Cleanup(func() {
		cancel()
		if client == nil {
			client = <-connected
		}
		if client != nil {
			_ = client.Close()
		}
	})
	there := func() bool {
		if client == nil {
			select {
			case client = <-connected:
			default:
			}
		}
		return client != nil
	}
	return echoed{
		write: func(b []byte) error {
			if !there() {
				return ErrNotConnected
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return client.WritePacket(ctx, b)
		},
		read: func(ctx context.Context, b []byte) (int, error) {
			if !there() {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return client.ReadPacket(ctx, b)
		},
	}
}

// servedVictim is a client of this process's listener.
func servedVictim(t *testing.T, b *Broker) (echoed, []string) {
	t.Helper()
	l, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var current *Conn
	changed := make(chan *Conn, 1)
	ended := make(chan *Conn, 1)
	_, err = l.Add(Config{
		ID:           1,
		Connected:    func(c *Conn) { changed <- c },
		Disconnected: func(c *Conn, _ error) { ended <- c },
	})
	if err != nil {
		t.Fatal(err)
	}
	follow := func() *Conn {
		select {
		case c := <-ended:
			if c == current {
				current = nil
			}
			c.Release()
		case current = <-changed:
		default:
		}
		return current
	}
	t.Cleanup(func() {
		for follow() != nil {
			current.Close()
		}
	})
	return echoed{
		write: func(b []byte) error {
			if c := follow(); c == nil || c.TxQueues()[0].Send([][]byte{b}) != 1 {
				return ErrNotConnected
			}
			return nil
		},
		read: func(ctx context.Context, b []byte) (int, error) {
			for v := [][]byte{b[:0]}; ctx.Err() == nil; {
				if c := follow(); c != nil && c.RxQueues()[0].Receive(v) == 1 {
					return len(v[0]), nil
				}
				<-time.After(time.Millisecond)
			}
			return 0, ctx.Err()
		},
	}, []string{SocketVariable + "=" + l.Path()}
}

// servingVictim is a server, and this process its client.
func servingVictim(t *testing.T) (echoed, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	return clientOf(t, ClientConfig{Socket: path, ID: 1}), []string{SocketVariable + "=" + path, listenVariable + "=1"}
}

// splicedVictim is a server, and this process its client by a splice.
func splicedVictim(t *testing.T) (echoed, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	b := newBroker(t)
	s, err := b.Splice(SpliceConfig{
		Path: filepath.Join(t.TempDir(), "c"), ClientID: 7, ServerID: 1,
		Dial: func() (*net.UnixConn, error) {
			return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return clientOf(t, ClientConfig{Socket: s.Path(), ID: 7}), []string{
		SocketVariable + "=" + path, listenVariable + "=1",
	}
}
