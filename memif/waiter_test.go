package memif

import (
	"testing"

	"golang.org/x/sys/unix"
)

func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// TestServerSleepsAndIsWoken goes the way of a worker: no ring while it polls, one when it sleeps, none lost in between.
func TestServerSleepsAndIsWoken(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	rx, tx := server.RxQueues()[0], client.TxQueues()[0]
	w, err := NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(rx); err != nil {
		t.Fatal(err)
	}
	tx.Send(packets(1, 64))
	if readable(t, w.FD()) || tx.Stats().Rings != 0 {
		t.Error("rung while polling")
	}
	if !rx.Arm() {
		t.Error("armed without seeing what waits")
	}
	rx.Receive(buffers(1))
	if rx.Arm() {
		t.Error("sees packets where none wait")
	}
	for range 3 {
		tx.Send(packets(1, 64))
		if !readable(t, w.FD()) {
			t.Error("not woken")
		}
		w.Clear()
		if readable(t, w.FD()) {
			t.Error("rings on")
		}
	}
	if n := rx.Waiting(); n != 3 {
		t.Errorf("%d wait", n)
	}
	rx.Disarm()
	tx.Send(packets(1, 64))
	w.Remove(rx)
	rx.Arm()
	tx.Send(packets(1, 64))
	if readable(t, w.FD()) {
		t.Error("rung after Disarm or Remove")
	}
}
