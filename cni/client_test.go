package cni

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/cni/cnitest"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/test/stopwatch"
)

func askAdd(t *testing.T, socket string, p patience) (*weftv1.AddReply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return ask(ctx, socket, p, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.AddReply, error) {
		return agent.Add(ctx, &weftv1.AddRequest{})
	})
}

func TestAnAgentThatRestartsDuringTheCallIsWaitedFor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	first, second := &cnitest.Agent{}, &cnitest.Agent{}
	first.Behave(cnitest.Hang)
	stop := first.Listen(t, socket)
	served := make(chan error, 1)
	go func() {
		_, err := askAdd(t, socket, patience{starting: time.Minute})
		served <- err
	}()
	for len(first.Requests()) == 0 {
		if !pause(t.Context(), time.Millisecond) {
			t.Fatal("the first agent was not asked")
		}
	}
	stop()
	pause(t.Context(), 2*retryEvery) // no process listens for a while
	second.Listen(t, socket)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := len(second.Requests()); n != 1 {
		t.Errorf("the second agent was asked %d times", n)
	}
}

func TestPatienceEnds(t *testing.T) {
	tests := map[string]struct {
		behaviour cnitest.Behaviour
		patience  patience
		asked     int
		fails     func(*weftv1.AddReply, error) bool
	}{
		"with an agent that starts for ever": {cnitest.Starting, patience{starting: 4 * retryEvery}, 3,
			func(r *weftv1.AddReply, err error) bool { return err == nil && isStarting(r) }},
		"with one that is never available": {cnitest.Unavailable, patience{starting: 4 * retryEvery}, 3,
			func(_ *weftv1.AddReply, err error) bool { return status.Code(err) == codes.Unavailable }},
		"at once, where none is asked for": {cnitest.Starting, patience{}, 1,
			func(r *weftv1.AddReply, err error) bool { return err == nil && isStarting(r) }},
		"at once, with a refusal": {cnitest.Deny, patience{silent: time.Hour, starting: time.Hour}, 1,
			func(_ *weftv1.AddReply, err error) bool { return status.Code(err) == codes.PermissionDenied }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			agent := &cnitest.Agent{}
			agent.Behave(tt.behaviour)
			agent.Listen(t, socket)
			if r, err := askAdd(t, socket, tt.patience); !tt.fails(r, err) {
				t.Errorf("got %v, %v", r, err)
			}
			if n := len(agent.Requests()); n > tt.asked || n < min(tt.asked, 2) {
				t.Errorf("asked %d times, want %d", n, tt.asked)
			}
		})
	}
	var err error
	took := stopwatch.Time(func() { _, err = askAdd(t, filepath.Join(t.TempDir(), "s"), patience{silent: 4 * retryEvery}) })
	if _, away := errors.AsType[*unreachableError](err); !away || took > 4*retryEvery+time.Second {
		t.Errorf("where nobody listens it ended after %s with %v", took, err)
	}
}
