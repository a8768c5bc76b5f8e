package slow_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/slow"
)

func TestRingKeepsOrderAndRefusesWhenFull(t *testing.T) {
	r := slow.NewRing[slow.Message](2)
	for i := range 4 {
		r.Reserve().Fill([]byte{byte(i)})
		r.Commit()
	}
	if r.Reserve() != nil {
		t.Error("a fifth message fits into four")
	}
	for i := range 4 {
		if m := r.Peek(); m == nil || m.Bytes()[0] != byte(i) {
			t.Fatalf("message %d: %v", i, m)
		}
		r.Advance()
	}
	if r.Peek() != nil || !r.Empty() {
		t.Error("not empty")
	}
}

func TestMessageTruncatesLongFrame(t *testing.T) {
	var m slow.Message
	if m.Fill(make([]byte, slow.MessageSize)); !m.Whole || len(m.Bytes()) != slow.MessageSize {
		t.Errorf("%d bytes, whole %v", len(m.Bytes()), m.Whole)
	}
	if m.Fill(make([]byte, slow.MessageSize+1)); m.Whole || len(m.Bytes()) != slow.MessageSize {
		t.Errorf("%d bytes, whole %v", len(m.Bytes()), m.Whole)
	}
}

// The reader sleeps when the ring is empty. A sleep that lasts until its deadline means a lost wake-up.
func TestNoWakeUpIsLost(t *testing.T) {
	const (
		total = 20000
		lost  = time.Minute
	)
	r := slow.NewRing[slow.Message](4)
	bell, err := slow.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	done := make(chan uint64)
	go func() {
		read := uint64(0)
		for read < total {
			m := r.Peek()
			if m == nil {
				over := time.Now().Add(lost)
				if bell.Wait(over, r.Empty) != nil || time.Now().After(over) {
					break
				}
				continue
			}
			if binary.BigEndian.Uint64(m.Bytes()) != read {
				break
			}
			read++
			r.Advance()
		}
		done <- read
	}()
	for i := uint64(0); i < total; {
		m := r.Reserve()
		if m == nil {
			runtime.Gosched() // the reader may have no other processor
			continue
		}
		m.Fill(binary.BigEndian.AppendUint64(nil, i))
		r.Commit()
		bell.Ring()
		i++
	}
	if n := <-done; n != total {
		t.Errorf("%d of %d in order", n, total)
	}
}

// A ringer that writes late leaves a wake-up in the eventfd: it may end one sleep early, but not the next one.
func TestLateRingEndsOneSleepOnly(t *testing.T) {
	bell, err := slow.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	if _, err := unix.Write(bell.Descriptor(), []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	idle := func() bool { return true }
	for range 2 {
		if err := bell.Wait(time.Now().Add(20*time.Millisecond), idle); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := bell.Wait(began.Add(20*time.Millisecond), idle); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("slept %v, %v", time.Since(began), err)
	}
}

// The Go runtime may send signals to threads at any time.
func TestWaitContinuesAfterSignal(t *testing.T) {
	bell, err := slow.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	const long = 200 * time.Millisecond
	thread := make(chan int)
	slept := make(chan time.Duration)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		began := time.Now()
		err := bell.Wait(began.Add(long), func() bool { return true })
		if err != nil {
			t.Error(err)
		}
		slept <- time.Since(began)
	}()
	for id := <-thread; ; {
		select {
		case d := <-slept:
			if d < long {
				t.Errorf("slept %v of %v", d, long)
			}
			return
		case <-time.After(time.Millisecond):
			if err := unix.Tgkill(unix.Getpid(), id, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
		}
	}
}
