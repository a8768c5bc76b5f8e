package memif_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/node"
)

// A client with the secret connects. VPP checks the connection before the secret, so a client of a connected memif gets
// that error with any secret.
func TestClientWithoutTheSecretIsRefusedWithAReason(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	vnf := containers[0]
	secret := vnf.Envs[memif.SecretVariable]
	if len(secret) != 23 {
		t.Fatalf("the secret has %d bytes, want 23", len(secret))
	}
	tests := map[string]struct{ secret, why string }{
		"none":               {"", "secret required"},
		"another":            {strings.Repeat("x", len(secret)), "incorrect secret"},
		"one bit, the first": {flip(secret, 0, 0), "incorrect secret"},
		"one bit, the last":  {flip(secret, len(secret)-1, 7), "incorrect secret"},
		"one bit, within":    {flip(secret, 11, 5), "incorrect secret"},
		"its beginning":      {secret[:len(secret)-1], "incorrect secret"},
		"more than it":       {secret + "x", "incorrect secret"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := memif.Connect(t.Context(), memif.ClientConfig{
				Socket: m1.SocketPath,
				ID:     1,
				Secret: memif.Secret(tt.secret),
				Name:   "m1",
			})
			refused, ok := errors.AsType[*memif.DisconnectError](err)
			if !ok || !refused.Remote || refused.Reason != tt.why {
				t.Errorf("error %v, want disconnection by the peer: %s", err, tt.why)
			}
			stranger := l.start(d, with(vnf, memif.SecretVariable, tt.secret), "icmpresponder")
			l.awaitOutput(stranger, "m1: not connected: memif 1 on /run/memif/memif.sock: peer disconnected: "+tt.why)
			stranger.end()
		})
	}
	responder := l.start(d, vnf, "icmpresponder")
	l.awaitOutput(responder, "connected to")
	stranger := l.start(d, with(vnf, memif.SecretVariable, tests["another"].secret), "icmpresponder")
	l.awaitOutput(stranger, "m1: not connected: memif 1 on /run/memif/memif.sock: peer disconnected: already connected")
	for _, address := range m1.Bare() {
		l.reach(a, address)
	}
	if output := responder.out.String(); strings.Contains(output, "disconnected") {
		t.Errorf("output of the first client: %s", output)
	}
}

func flip(secret string, at, bit int) string {
	b := []byte(secret)
	b[at] ^= 1 << bit
	return string(b)
}

// Both use the right secret of the same memif.
func TestSecondClientIsRefusedUntilTheFirstDisconnects(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	first := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(first, "connected to")
	second := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(second, "peer disconnected: already connected")
	l.reach(a, m1.Bare()[0])
	first.end()
	l.awaitOutput(second, "m1: connected to")
	l.reach(a, m1.Bare()[0])
}

func TestUnknownInterfaceIDIsRefused(t *testing.T) {
	l := newLab(t, node.Options{})
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	_, err := memif.Connect(t.Context(), memif.ClientConfig{
		Socket: m1.SocketPath, ID: 2, Secret: memif.Secret(containers[0].Envs[memif.SecretVariable]),
	})
	if err == nil || !strings.Contains(err.Error(), "unmatched interface id") {
		t.Errorf("error %v, want unmatched interface id", err)
	}
}
