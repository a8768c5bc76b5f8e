package memif

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lie is an invalid handshake and the expected reason.
type lie struct {
	tell   func(*liar)
	reason string
}

// liedSize is the size of the region in most lies.
const liedSize = 1 << 20

// afterInit returns a lie that begins with a valid INIT.
func afterInit(lies func(*liar)) func(*liar) {
	return func(l *liar) {
		l.say(start().encode(), -1)
		lies(l)
	}
}

func liesInInit() map[string]lie {
	lying := func(change func(*initiation)) func(*liar) {
		i := start()
		change(&i)
		return func(l *liar) { l.say(i.encode(), -1) }
	}
	return map[string]lie{
		"a secret wrong by one bit": {lying(func(i *initiation) { i.secret[5] ^= 1 }), "incorrect secret"},
		"no secret":                 {lying(func(i *initiation) { i.secret = secretField{} }), "secret required"},
		"an unknown id":             {lying(func(i *initiation) { i.id = 2 }), "unmatched interface id"},
		"another mode":              {lying(func(i *initiation) { i.mode = IP }), "mode mismatch"},
		"another version":           {lying(func(i *initiation) { i.version++ }), "unsupported version"},
	}
}

func liesInMessages() map[string]lie {
	const (
		unexpected = "unexpected message received"
		broken     = "handshake failed"
	)
	right := start().encode()
	rights := func(n int) func(*liar) {
		return afterInit(func(l *liar) {
			var fds []int
			for range n {
				fds = append(fds, l.eventfd())
			}
			_, _, _ = l.socket.WriteMsgUnix(newRegion{size: liedSize}.encode()[:], unix.UnixRights(fds...), nil)
		})
	}
	again := func(m *message) func(*liar) { return afterInit(func(l *liar) { l.say(m, -1) }) }
	return map[string]lie{
		"a region before INIT": {func(l *liar) {
			l.say(newRegion{size: liedSize}.encode(), l.memfd(liedSize, unix.MFD_ALLOW_SEALING))
		}, unexpected},
		"INIT twice":             {again(right), unexpected},
		"an unknown type":        {again(newMessage(99)), unexpected},
		"a hello":                {again(newMessage(helloMessage)), unexpected},
		"connect without rings":  {again(named(connectMessage, "x")), "no rings"},
		"a descriptor with INIT": {func(l *liar) { l.say(right, l.eventfd()); l.say(right, -1) }, unexpected},
		"half a message":         {func(l *liar) { _, _ = l.socket.Write(right[:64]) }, broken},
		"a message and a half":   {func(l *liar) { _, _ = l.socket.Write(append(right[:], right[:64]...)) }, broken},
		"two descriptors":        {rights(2), broken},
		"twenty descriptors":     {rights(20), broken},
	}
}

func liesInRegions() map[string]lie {
	region := func(index uint16, announced uint64, real int64) func(*liar) {
		return afterInit(func(l *liar) {
			l.say(newRegion{index: index, size: announced}.encode(), l.memfd(real, unix.MFD_ALLOW_SEALING))
		})
	}
	const noMemory = "region is not shared memory"
	return map[string]lie{
		"a region without memory": {afterInit(func(l *liar) {
			l.say(newRegion{size: liedSize}.encode(), -1)
		}), "missing memory region fd"},
		"a region out of order":           {region(1, liedSize, liedSize), "unexpected region index"},
		"an empty region":                 {region(0, 0, liedSize), "too much memory"},
		"a region shorter than announced": {region(0, liedSize, liedSize-1), "region is shorter than announced"},
		"an endless region":               {region(0, 1<<63, liedSize), "too much memory"},
		"more memory than allowed":        {region(0, 1<<26+1, 1<<27), "too much memory"},
		"regions with more memory than allowed together": {afterInit(func(l *liar) {
			l.say(newRegion{size: liedSize}.encode(), l.memfd(liedSize, unix.MFD_ALLOW_SEALING))
			l.say(newRegion{index: 1, size: 1<<26 - liedSize + 1}.encode(), l.memfd(liedSize, unix.MFD_ALLOW_SEALING))
		}), "too much memory"},
		"a region that is a file": {afterInit(func(l *liar) {
			f, err := os.Open(os.Args[0])
			if err != nil {
				l.t.Fatal(err)
			}
			defer f.Close()
			l.say(newRegion{size: 4096}.encode(), int(f.Fd()))
		}), noMemory},
		"a region that is a pipe": {afterInit(func(l *liar) {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				l.t.Fatal(err)
			}
			defer closeAll(p[:])
			l.say(newRegion{size: 4096}.encode(), p[0])
		}), noMemory},
	}
}

func liesInRings() map[string]lie {
	ringOf := func(r newRing) func(*liar) {
		return afterInit(func(l *liar) {
			l.say(newRegion{size: liedSize}.encode(), l.memfd(liedSize, unix.MFD_ALLOW_SEALING))
			l.say(r.encode(), l.eventfd())
			l.say(named(connectMessage, "lie"), -1)
		})
	}
	return map[string]lie{
		"a ring without eventfd": {afterInit(func(l *liar) {
			l.say(newRing{toServer: true}.encode(), -1)
		}), "missing ring interrupt fd"},
		"a ring with another descriptor": {afterInit(func(l *liar) {
			l.say(newRing{toServer: true}.encode(), l.memfd(4096, 0))
		}), "interrupt fd is not an eventfd"},
		"a ring out of order":      {ringOf(newRing{toServer: true, index: 1, log2: 4}), "unexpected ring index"},
		"a ring too large":         {ringOf(newRing{toServer: true, log2: 11}), "ring too large"},
		"a ring larger than words": {ringOf(newRing{toServer: true, log2: 255}), "ring too large"},
		"a private header": {
			ringOf(newRing{log2: 4, privateHeaderSize: 1}), "private headers are not supported",
		},
		"a ring without region": {ringOf(newRing{toServer: true, log2: 4, region: 1}), "ring in unknown region"},
		"a ring beyond its region": {
			ringOf(newRing{toServer: true, log2: 4, offset: liedSize - 300}), "ring out of region",
		},
		"a ring at the very end": {ringOf(newRing{log2: 4, offset: 0xfffffff0}), "ring out of region"},
		"a ring between words":   {ringOf(newRing{toServer: true, log2: 4, offset: 2}), "ring not aligned"},
		"a ring without cookie":  {ringOf(newRing{toServer: true, log2: 4, offset: 4096}), "wrong cookie on ring"},
	}
}

// Each invalid handshake ends only its own connection, with a reason, and leaves neither descriptor nor mapping behind.
func TestInvalidHandshakesAreRefusedWithAReason(t *testing.T) {
	lies := map[string]lie{}
	for _, some := range []map[string]lie{liesInInit(), liesInMessages(), liesInRegions(), liesInRings()} {
		maps.Copy(lies, some)
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) { checkLie(t, nil, lie) })
	}
	t.Run("with a broker", func(t *testing.T) {
		b := newBroker(t)
		for name, lie := range lies {
			t.Run(name, func(t *testing.T) { checkLie(t, b, lie) })
		}
	})
}

func checkLie(t *testing.T, b *Broker, told lie) {
	l := newLab(t, ListenOptions{MaxMemory: 1 << 26, MaxRegions: 4, Broker: b})
	l.addReleasing(t, hostileConfig)
	l.stillServes(t)
	before := settledDescriptors(t)
	liar := newLiar(t, l.Path())
	told.tell(liar)
	if kind, reason := liar.firstAnswer(); kind != disconnectMessage || reason != told.reason {
		t.Errorf("answered %d %q", kind, reason)
	}
	await(t, l.refused, "refusal")
	liar.leave()
	eventually(t, "descriptors return", func() bool { return openDescriptors(t) == before })
	eventually(t, "no region is mapped", func() bool { return mappings(t) == 0 })
	l.stillServes(t)
}

func TestSecondProcessIsRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	config := ClientConfig{ID: 1, Secret: hostileConfig.Secret}
	connectPair(t, l, config)
	config.Socket = l.Path()
	if _, err := Connect(t.Context(), config); reasonFrom(err) != "already connected" {
		t.Errorf("second client: %v", err)
	}
	r := await(t, l.refused, "refusal")
	if r.ID != 1 || !r.IDKnown || r.PID != os.Getpid() || r.UID != os.Getuid() ||
		reasonFrom(r.Err) != "already connected" {
		t.Errorf("refused %+v", r)
	}
}

func TestTenThousandConnects(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.addReleasing(t, hostileConfig)
	l.stillServes(t)
	before := settledDescriptors(t)
	wrong := start()
	wrong.secret[0] ^= 1
	for i := range 10000 {
		liar := newLiar(t, l.Path())
		if i%2 == 0 {
			liar.say(wrong.encode(), -1)
			if kind, _ := liar.firstAnswer(); kind == connectedMessage {
				t.Fatal("connected")
			}
		}
		liar.leave()
	}
	eventually(t, "descriptors return", func() bool { return openDescriptors(t) == before })
	l.stillServes(t)
}

func TestSilentClientIsDisconnected(t *testing.T) {
	l := newLab(t, ListenOptions{HandshakeTimeout: 500 * time.Millisecond, MaxPending: 1})
	l.addReleasing(t, hostileConfig)
	newLiar(t, l.Path())
	await(t, l.refused, "refusal")
	l.stillServes(t)
}

// Finding 3: if asynchronous I/O is exhausted, a server cannot notify without the risk that a client blocks it.
func TestClientIsRefusedWithoutAsynchronousIOForNotifications(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.addReleasing(t, hostileConfig)
	l.stillServes(t)
	before := theCompleter.Swap(nil)
	replace := func(open func() (*completer, error)) {
		preparing.Lock()
		defer preparing.Unlock()
		openCompleter = open
	}
	replace(func() (*completer, error) { return nil, unix.EAGAIN })
	config := ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret}
	_, err := Connect(t.Context(), config)
	replace(newCompleter)
	theCompleter.Store(before)
	if got := reasonFrom(err); got != "no asynchronous I/O to notify with (fs.aio-max-nr)" {
		t.Errorf("connected without: %v", err)
	}
	l.stillServes(t)
}

// Finding 11g: a restarted program may connect before the server has processed the end of its former connection.
func TestRestartedProgramWaitsForTheEndOfItsFormerConnection(t *testing.T) {
	for name, broker := range map[string]func(*testing.T) *Broker{
		"without a broker": func(*testing.T) *Broker { return nil },
		"with a broker":    newBroker,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ListenOptions{Broker: broker(t)})
			ending := make(chan struct{})
			release := make(chan struct{})
			l.addWith(t, hostileConfig, func(c *Conn) {
				ending <- struct{}{}
				<-release
				c.Release()
			})
			config := ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret}
			former, err := Connect(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			await(t, l.connected, "connection")
			former.Close()
			former.Release()
			<-ending // the memory is still in use
			result := make(chan error)
			var next *Conn
			go func() {
				var err error
				next, err = Connect(context.Background(), config)
				result <- err
			}()
			eventually(t, "the next client starts its handshake", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.handshakes) > 0
			})
			close(release)
			if err := <-result; err != nil {
				t.Fatal(err)
			}
			await(t, l.connected, "connection")
			next.Close()
			<-ending
			_ = await(t, l.disconnected, "end of the former connection")
			_ = await(t, l.disconnected, "end of the next connection")
			next.Release()
		})
	}
}
