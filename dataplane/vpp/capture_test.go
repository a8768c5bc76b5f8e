package vpp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/span"

	"github.com/weftnet/weft/memif"
)

// captures returns the mirrors, the memifs and the sockets of captures in the dataplane.
func (l *memifLab) captures() (mirrors, memifs, sockets int) {
	l.Helper()
	spans := askAll(&span.SwInterfaceSpanDump{}, &span.SwInterfaceSpanDetails{})
	listed := dumpSockets()
	found := dumpMemifs()
	if err := l.client.exchangeAll(l.Context(), []*request{spans, listed, found}); err != nil {
		l.Fatal(err)
	}
	there := socketsIn(listed)
	for _, m := range memifsIn(found) {
		if strings.Contains(there[SocketID(m.SocketID)], "/captures/") {
			memifs++
		}
	}
	for _, p := range there {
		if strings.Contains(p, "/captures/") {
			sockets++
		}
	}
	return len(spans.details), memifs, sockets
}

func (l *memifLab) mustHaveCaptures(mirrors, memifs, sockets int) {
	l.Helper()
	if m, i, s := l.captures(); m != mirrors || i != memifs || s != sockets {
		l.Errorf("%d mirrors, %d memifs, %d sockets of captures, want %d, %d, %d", m, i, s, mirrors, memifs, sockets)
	}
}

// The scheduler neither sees nor removes a running capture. After the end of its agent the next connection removes it,
// and only it.
func TestCaptureIsRemovedByTheNextConnection(t *testing.T) {
	l := newMemifLab(t)
	l.client.options.RunDir = t.TempDir()
	l.mustCommit(append(l.allocation("a", 5), memifOn("m1", "a", 1))...)
	k, err := l.client.OpenCapture(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context(), Directions{FromPod: true}); err != nil {
		t.Fatal(err)
	}
	l.mustHaveCaptures(1, 1, 1)
	l.quiet()
	l.resync()
	l.mustHaveCaptures(1, 1, 1)
	if err := k.Check(t.Context()); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(l.client.options.captureDirectory())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v", info.Mode(), err)
	}
	connect(t, l.ruins.socket, Options{RunDir: l.client.options.RunDir})
	l.mustHaveCaptures(0, 0, 0)
	if _, err := os.Lstat(k.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file of the socket: %v", err)
	}
	l.mustHave("m1 5/1", "5 a")
	l.quiet()
	if err := k.Close(t.Context()); err != nil { // it is gone already
		t.Error(err)
	}
	l.mustHave("m1 5/1", "5 a")
}

func TestCaptureOfAnUnknownInterfaceLeavesNothing(t *testing.T) {
	l := newMemifLab(t)
	l.client.options.RunDir = t.TempDir()
	if _, err := l.client.OpenCapture(t.Context(), "none"); !errors.Is(err, ErrNoInterface) {
		t.Error(err)
	}
	l.mustHaveCaptures(0, 0, 0)
}

// sendUntil sends a packet repeatedly until ctx ends.
func sendUntil(ctx context.Context, c *memif.Client, packet []byte) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.WritePacket(ctx, packet); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// A memif captured while its client sends: the mirror has the frame. Its deletion ends the capture.
func TestCaptureOfAMemif(t *testing.T) {
	l := newMemifLab(t)
	l.client.options.RunDir = t.TempDir()
	l.mustCommit(append(l.allocation("a", 5), memifOn("m1", "a", 1))...)
	k, err := l.client.OpenCapture(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := memif.Dial(t.Context(), memif.ClientConfig{Socket: k.Socket}, memif.ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	if err := k.Start(t.Context(), Directions{FromPod: true, ToPod: true}); err != nil {
		t.Fatal(err)
	}
	pod, err := memif.Dial(t.Context(),
		memif.ClientConfig{Socket: filepath.Join(l.root, "a", "memif.sock"), ID: 1, Secret: "open sesame"},
		memif.ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	sent := []byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5 a frame of an experimental type")
	// A client knows that it is connected before the dataplane uses its rings: frames until then are not mirrored.
	sending, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sendUntil(sending, pod, sent) }()
	reading, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make([]byte, 2048)
	if n, err := mirror.ReadPacket(reading, got); err != nil || string(got[:n]) != string(sent) {
		t.Errorf("%q, %v", got[:n], err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	l.mustHaveCaptures(0, 0, 0)
	l.mustCommit(object{"vpp.interface/m1", nil})
	if err := k.Check(t.Context()); !errors.Is(err, ErrNoInterface) {
		t.Error(err)
	}
}
