package forward

import (
	"encoding/binary"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// exactBucket is a token bucket in exact fractions of a byte.
type exactBucket struct {
	rate, burst, tokens *big.Rat // bytes, a nanosecond
	at                  time.Duration
}

func newExactBucket(c PolicerConfig) *exactBucket {
	burst := new(big.Rat).SetInt64(int64(c.Burst))
	return &exactBucket{rate: big.NewRat(int64(c.Rate), int64(nanosPerByte)), burst: burst, tokens: burst}
}

func (b *exactBucket) take(now time.Duration, size int) bool {
	grown := new(big.Rat).Mul(b.rate, new(big.Rat).SetInt64(int64(now-b.at)))
	b.at = now
	b.tokens = new(big.Rat).Add(b.tokens, grown)
	if b.tokens.Cmp(b.burst) > 0 {
		b.tokens = b.burst
	}
	need := new(big.Rat).SetInt64(int64(size))
	if b.tokens.Cmp(need) < 0 {
		return false
	}
	b.tokens = new(big.Rat).Sub(b.tokens, need)
	return true
}

func single(size int) train { return train{packets: 1, size: size, last: size} }

func TestPolicerIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := PolicerConfig{
			Rate:  rapid.Uint32Range(1, wholeMegabits).Draw(t, "rate"),
			Burst: rapid.Uint32Range(64, 1<<32-1).Draw(t, "burst"),
		}
		if rapid.Bool().Draw(t, "fast") {
			c.Rate = 1000 * rapid.Uint32Range(wholeMegabits/1000, 4_294_967).Draw(t, "megabits")
		}
		if rapid.Bool().Draw(t, "small burst") {
			c.Burst = min(c.Burst, 20_000)
		}
		p := NewPolicer(c)
		want := newExactBucket(c)
		var now time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "packets") {
			now += time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(0, 36).Draw(t, "order")).Draw(t, "pause"))
			size := rapid.IntRange(60, 9614).Draw(t, "size")
			if got, conforms := p.take(now, single(size)) == 1, want.take(now, size); got != conforms {
				t.Fatalf("at %s a packet of %d bytes conforms: %v, want %v", now, size, got, conforms)
			}
		}
	})
}

// A train is its packets one after the other, except that none passes after one that does not.
func TestTrainConformsAsItsPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := PolicerConfig{
			Rate:  rapid.Uint32Range(1, 10_000_000).Draw(t, "rate"),
			Burst: rapid.Uint32Range(1500, 100_000).Draw(t, "burst"),
		}
		whole := NewPolicer(c)
		each := NewPolicer(c)
		var now time.Duration
		for range 20 {
			now += time.Duration(rapid.Int64Range(0, 1e8).Draw(t, "pause"))
			tr := train{packets: rapid.IntRange(1, 45).Draw(t, "packets"), size: 1514}
			tr.last = rapid.IntRange(60, tr.size).Draw(t, "last")
			n := 0
			for n < tr.packets {
				size := tr.size
				if n == tr.packets-1 {
					size = tr.last
				}
				if each.take(now, single(size)) == 0 {
					break
				}
				n++
			}
			if got := whole.take(now, tr); got != n {
				t.Fatalf("%d of %+v conform, want %d", got, tr, n)
			}
		}
	})
}

// Workers that take at once share the bucket: together they get its tokens, not one byte more or less.
func TestWorkersShareAPolicerExactly(t *testing.T) {
	const packets = 20_000
	p := NewPolicer(PolicerConfig{Rate: 8, Burst: packets * 100}) // a byte a millisecond
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range packets {
				passed.Add(int64(p.take(0, single(100))))
			}
		})
	}
	all.Wait()
	if passed.Load() != packets {
		t.Errorf("%d packets passed, want %d", passed.Load(), packets)
	}
	if n := p.take(99*time.Millisecond, single(100)); n != 0 {
		t.Error("a packet passed before there were tokens for it")
	}
	if n := p.take(100*time.Millisecond, single(100)); n != 1 {
		t.Error("no packet passed when there were tokens for it")
	}
}

// A worker that reads the clock before another one took tokens gets no tokens for the time between.
func TestLateClockTakesNoTokens(t *testing.T) {
	p := NewPolicer(PolicerConfig{Rate: 8000, Burst: 1000}) // a byte a microsecond
	if p.take(time.Second, single(1000)) != 1 || p.take(time.Second-time.Millisecond, single(1)) != 0 {
		t.Error("the bucket was full twice")
	}
	if p.take(time.Second+time.Microsecond, single(1)) != 1 {
		t.Error("the late clock took tokens")
	}
}

func TestIdlePolicerIsFullAfterItsUnitsWrapped(t *testing.T) {
	p := NewPolicer(PolicerConfig{Rate: 16_777_213, Burst: 1500}) // a prime: as many units a nanosecond
	now := time.Duration(0)
	for range 1000 {
		if p.take(now, single(1500)) != 1 {
			t.Fatalf("at %s the bucket is not full", now)
		}
		now += 7 * time.Minute
	}
}

// limited configures interface 1 and 2 of a bench with policers, and a clock that stands still.
func limited(tb testing.TB, input, output *PolicerConfig) (*bench, *time.Duration) {
	tb.Helper()
	b := newBench(tb)
	now := new(time.Duration)
	*now = time.Hour
	b.worker.stopwatch = func() time.Duration { return *now }
	policer := func(c *PolicerConfig) *Policer {
		if c == nil {
			return nil
		}
		return NewPolicer(*c)
	}
	for index, c := range map[uint32]Interface{1: {PoliceInput: policer(input)}, 2: {PoliceOutput: policer(output)}} {
		c.Up = true
		c.MAC = portMAC
		c.Addresses = own
		c.IP6Enabled = true
		if err := b.engine.SetInterface(index, c); err != nil {
			tb.Fatal(err)
		}
	}
	b.engine.Publish()
	return b, now
}

func TestPolicerDropsWhatExceedsTheRate(t *testing.T) {
	c := PolicerConfig{Rate: 8000, Burst: 1000} // a byte a microsecond
	for name, at := range map[string]struct {
		input, output *PolicerConfig
		drops         string
		frame         []byte
	}{
		"received":                 {&c, nil, "policer-input/Packets Dropped", udp4("10.2.7.7", 58)},
		"sent":                     {nil, &c, "policer-output/Packets Dropped", udp4("10.2.7.7", 58)},
		"received, IPv6":           {&c, nil, "policer-input/Packets Dropped", udp6("fd02::7", 38)},
		"sent, IPv6":               {nil, &c, "policer-output/Packets Dropped", udp6("fd02::7", 38)},
		"sent, not the first port": {nil, &c, "policer-output/Packets Dropped", udp4("10.2.7.7", 58)},
	} {
		for _, traced := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				b, now := limited(t, at.input, at.output)
				if traced {
					b.worker.tracing = &tracing{records: make([]tracePath, 0, 64)}
					b.worker.tracing.left = [InputNodes]int{64, 64, 64}
				}
				if len(at.frame) != 100 {
					t.Fatalf("a frame of %d bytes", len(at.frame))
				}
				for _, step := range []struct {
					pause time.Duration
					sent  int
				}{{0, 10}, {99 * time.Microsecond, 10}, {time.Microsecond, 11}, {time.Hour, 21}} {
					*now += step.pause
					b.run(at.frame, frame.Virtio{}, 15)
					if b.out.sent != step.sent {
						t.Errorf("%d frames sent, want %d", b.out.sent, step.sent)
					}
				}
				if n := b.engine.Drops()[at.drops]; n != 4*15-21 {
					t.Errorf("%d drops counted, want %d: %v", n, 4*15-21, b.engine.Drops())
				}
				if n := b.engine.Counters(1).Drops; n != 4*15-21 {
					t.Errorf("%d drops of the interface", n)
				}
			})
		}
	}
}

func TestPolicerMarksConformingPackets(t *testing.T) {
	c := PolicerConfig{Rate: 8000, Burst: 1000, Marks: true, DSCP: 46}
	b, _ := limited(t, &c, nil)
	marked := 0
	b.out.show = func(raw []byte, _ frame.Virtio) {
		p, err := frame.ParseIPv4(raw[frame.EthernetLen:])
		if err == nil && p.ChecksumValid() && raw[frame.EthernetLen+1] == 46<<2 {
			marked++
		}
	}
	b.run(udp4("10.2.7.7", 58), frame.Virtio{}, 15)
	if marked != 10 {
		t.Errorf("%d packets are marked, want 10", marked)
	}

	b, _ = limited(t, &c, nil)
	marked = 0
	b.out.show = func(raw []byte, _ frame.Virtio) {
		if binary.BigEndian.Uint32(raw[frame.EthernetLen:]) == 6<<28|46<<22 { // version 6, traffic class, flow 0
			marked++
		}
	}
	b.run(udp6("fd02::7", 38), frame.Virtio{}, 15)
	if marked != 10 {
		t.Errorf("%d packets of IPv6 are marked, want 10", marked)
	}
}

// The packets of a memif in mode ip have no Ethernet headers on the wire, so these do not count.
func TestPolicerCountsWhatAMemifInModeIPCarries(t *testing.T) {
	const size = 58
	for bare, want := range map[bool]int{false: 8, true: 10} {
		p := NewPolicer(PolicerConfig{Rate: 8, Burst: 10 * size})
		b, _ := limited(t, nil, nil)
		if err := b.engine.SetInterface(1, Interface{
			Up: true, MAC: portMAC, Addresses: own, Bare: bare, PoliceInput: p,
		}); err != nil {
			t.Fatal(err)
		}
		b.engine.Publish()
		raw := udp4("10.2.7.7", size-28)
		if len(raw) != size+frame.EthernetLen {
			t.Fatalf("a frame of %d bytes", len(raw))
		}
		b.run(raw, frame.Virtio{}, 15)
		if b.out.sent != want {
			t.Errorf("without headers %t: %d packets conform, want %d", bare, b.out.sent, want)
		}
	}
}

// Each segment counts with its headers, and the segments that exceed the burst are cut off.
func TestPolicerCutsGSOFrames(t *testing.T) {
	const size = 100 // of a segment
	raw := udp4("10.2.7.7", 10*size)
	v := frame.Virtio{
		Flags: frame.VirtioNeedsChecksum, GSOType: frame.GSOUDP, GSOSize: size,
		ChecksumStart: frame.EthernetLen + frame.IPv4Len, ChecksumOffset: 6,
	}
	c := PolicerConfig{Rate: 8, Burst: 3*(size+42) + 141}
	for name, at := range map[string]struct{ input, output *PolicerConfig }{
		"received": {&c, nil}, "sent": {nil, &c},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := limited(t, at.input, at.output)
			var lengths []int
			b.out.show = func(raw []byte, _ frame.Virtio) { lengths = append(lengths, len(raw)) }
			b.run(raw, v, 2)
			if len(lengths) != 1 || lengths[0] != 42+3*size {
				t.Errorf("frames of %v bytes were sent, want one with three segments", lengths)
			}
			sum := uint64(0)
			for _, n := range b.engine.Drops() {
				sum += n
			}
			if sum != 17 {
				t.Errorf("drops %v, want 17", b.engine.Drops())
			}
			i := b.engine.live.Load()
			p := i.iface(1).policeIn
			if at.output != nil {
				p = i.iface(2).policeOut
			}
			if packets, bytes := p.Dropped(); packets != 17 || bytes != 17*(size+42) {
				t.Errorf("the policer counted %d packets of %d bytes", packets, bytes)
			}
		})
	}
}

func BenchmarkPolicer(tb *testing.B) {
	c := &PolicerConfig{Rate: 4_000_000_000, Burst: 1 << 31}
	marks := &PolicerConfig{Rate: c.Rate, Burst: c.Burst, Marks: true, DSCP: 46}
	for _, at := range []struct {
		name          string
		input, output *PolicerConfig
	}{{"none", nil, nil}, {"input", c, nil}, {"output", nil, c}, {"both", c, c}, {"input with DSCP", marks, nil}} {
		tb.Run(at.name, func(tb *testing.B) {
			b, _ := limited(tb, at.input, at.output)
			start := time.Now()
			b.worker.stopwatch = func() time.Duration { return time.Hour + time.Since(start) }
			tb.ReportAllocs()
			tb.ResetTimer()
			b.run(udp4("10.2.7.7", 18), frame.Virtio{}, tb.N)
			if b.out.sent != tb.N {
				tb.Fatalf("%d of %d frames sent: %v", b.out.sent, tb.N, b.engine.Drops())
			}
		})
	}
}

// Frames without a verdict of their own: copies for the members of a bridge domain, and fragments.
func TestPolicerLimitsCopiesAndFragments(t *testing.T) {
	c := PolicerConfig{Rate: 8, Burst: 650}
	b, _ := limited(t, nil, nil)
	if err := b.engine.SetInterface(2, Interface{
		Up: true, MAC: portMAC, Addresses: own, MTU: 620, PoliceOutput: NewPolicer(c),
	}); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	b.run(udp4("10.2.7.7", 1000), frame.Virtio{}, 1)
	if b.out.sent != 1 || b.engine.Drops()["policer-output/Packets Dropped"] != 1 {
		t.Errorf("%d of two fragments sent: %v", b.out.sent, b.engine.Drops())
	}

	s := newSegment(t, routed(1, 1, 2, 3))
	s.set(2, Interface{Up: true, MAC: portMAC, PoliceOutput: NewPolicer(PolicerConfig{Rate: 8, Burst: 60})})
	s.engine.Publish()
	for range 3 {
		s.receive(1, requestOf("10.9.0.1", "10.9.0.9"), frame.Virtio{})
	}
	if n := s.engine.Drops()["policer-output/Packets Dropped"]; n != 2 {
		t.Errorf("%d of three copies dropped, want two: %v", n, s.engine.Drops())
	}
}

// The limit of a trunk is one for its untagged frames and all its VLANs, in both directions.
func TestPolicerLimitsAllVLANsOfATrunk(t *testing.T) {
	const size = 60
	limit := func() *Policer { return NewPolicer(PolicerConfig{Rate: 8, Burst: 4 * (size + frame.VLANLen)}) }
	raw := requestOf("10.9.0.1", "10.9.0.9")[:size]
	t.Run("to the trunk", func(t *testing.T) {
		s := newTrunk(t)
		s.set(trunkPort, Interface{Up: true, MAC: portMAC, PoliceOutput: limit()})
		s.engine.Publish()
		for range 3 {
			s.receive(2, raw, frame.Virtio{}) // VLAN 100
			s.receive(3, raw, frame.Virtio{}) // VLAN 200
		}
		if n := s.engine.Drops()["policer-output/Packets Dropped"]; n != 2 {
			t.Errorf("%d of six frames dropped, want two: %v", n, s.engine.Drops())
		}
	})
	t.Run("from the trunk", func(t *testing.T) {
		s := newTrunk(t)
		s.set(trunkPort, Interface{Up: true, MAC: portMAC, PoliceInput: limit()})
		s.engine.Publish()
		for range 3 {
			s.receive(trunkPort, tagged(raw, dot1q(100)), frame.Virtio{})
			s.receive(trunkPort, tagged(raw, dot1q(200)), frame.Virtio{})
		}
		if n := s.engine.Drops()["policer-input/Packets Dropped"]; n != 2 {
			t.Errorf("%d of six frames dropped, want two: %v", n, s.engine.Drops())
		}
	})
}
