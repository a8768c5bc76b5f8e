package memif

import (
	"bytes"
	"testing"
)

func TestPacketsBothWays(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{ID: 7, Secret: "open sesame", Name: "node"})
	server, client := connectPair(t, l, ClientConfig{ID: 7, Secret: "open sesame", Name: "pod", Program: "test"})
	if i := server.Info(); i.PeerInterface != "pod" || i.Peer != "test" || i.RingSize != 1024 || i.BufferSize != 2048 || i.Guarded {
		t.Errorf("server knows %+v", i)
	}
	if i := client.Info(); i.PeerInterface != "node" || i.Peer != "weft" || i.RingSize != 1024 {
		t.Errorf("client knows %+v", i)
	}
	for name, way := range map[string]struct {
		tx *TxQueue
		rx *RxQueue
	}{
		"to server": {client.TxQueues()[0], server.RxQueues()[0]},
		"to client": {server.TxQueues()[0], client.RxQueues()[0]},
	} {
		sent := [][]byte{[]byte("one"), bytes.Repeat([]byte("long"), 2000), []byte("three")}
		if n := way.tx.Send(sent); n != len(sent) {
			t.Fatalf("%s: sent %d", name, n)
		}
		got := [][]byte{make([]byte, 9000), make([]byte, 9000), make([]byte, 9000), make([]byte, 9000)}
		n := way.rx.Receive(got)
		if n != len(sent) {
			t.Fatalf("%s: received %d", name, n)
		}
		for i := range sent {
			if !bytes.Equal(sent[i], got[i]) {
				t.Errorf("%s: packet %d is %d bytes", name, i, len(got[i]))
			}
		}
	}
}
