package recovery

import (
	"context"
	"testing"

	"github.com/weftnet/weft/agent/southbound"
)

// connected is a dataplane with a connection.
type connected struct{ connection *southbound.Connection }

func (c connected) Connection() *southbound.Connection { return c.connection }
func (c connected) Ping(context.Context) error         { return nil }

func TestDriftIsNotCheckedBeforeAReplayNorDuringIt(t *testing.T) {
	replayed := &southbound.Connection{Ended: make(chan struct{})}
	lost := &southbound.Connection{Ended: make(chan struct{})}
	close(lost.Ended)
	for name, tt := range map[string]struct {
		current, replayed *southbound.Connection
		isReplaying, want bool
	}{
		"before the first replay":       {current: replayed},
		"a connection that is lost":     {current: lost, replayed: lost},
		"a new one, not replayed yet":   {current: &southbound.Connection{}, replayed: replayed},
		"during a replay":               {current: replayed, replayed: replayed, isReplaying: true},
		"after the connection's replay": {current: replayed, replayed: replayed, want: true},
	} {
		r := &Replayer{Config: Config{Dataplane: connected{tt.current}}, conn: tt.replayed}
		if tt.isReplaying {
			r.mu.Lock()
		}
		called := false
		if got := r.Unless(func() { called = true }); got != tt.want || called != tt.want {
			t.Errorf("%s: returned %t, called %t, want %t", name, got, called, tt.want)
		}
	}
}
