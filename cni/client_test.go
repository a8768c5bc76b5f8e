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

func askAdd(t *testing.T, e endpoint) (*weftv1.AddReply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return ask(ctx, e, weftv1.RemoteCNIClient.Add, &weftv1.AddRequest{})
}

func TestAskWaitsForAnAgentThatRestartsDuringTheCall(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	first, second := &cnitest.Agent{}, &cnitest.Agent{}
	first.Behave(cnitest.Hang)
	stop := first.Listen(t, socket)
	served := make(chan error, 1)
	go func() {
		_, err := askAdd(t, endpoint{socket: socket, starting: time.Minute})
		served <- err
	}()
	for len(first.Requests()) == 0 {
		if !pause(t.Context(), time.Millisecond) {
			t.Fatal("the first agent was not asked")
		}
	}
	stop()
	pause(t.Context(), 2*retryInterval) // no process listens for a while
	second.Listen(t, socket)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := len(second.Requests()); n != 1 {
		t.Errorf("the second agent was asked %d times", n)
	}
}

func TestAskStopsRetrying(t *testing.T) {
	tests := map[string]struct {
		behaviour cnitest.Behaviour
		endpoint  endpoint
		asked     int
		fails     func(*weftv1.AddReply, error) bool
	}{
		"an agent that starts forever": {cnitest.Starting, endpoint{starting: 4 * retryInterval}, 3,
			func(r *weftv1.AddReply, err error) bool { return err == nil && isStarting(r) }},
		"an agent that is never available": {cnitest.Unavailable, endpoint{starting: 4 * retryInterval}, 3,
			func(_ *weftv1.AddReply, err error) bool { return status.Code(err) == codes.Unavailable }},
		"no retry time": {cnitest.Starting, endpoint{}, 1,
			func(r *weftv1.AddReply, err error) bool { return err == nil && isStarting(r) }},
		"an error that is not retried": {cnitest.Deny, endpoint{unreachable: time.Hour, starting: time.Hour}, 1,
			func(_ *weftv1.AddReply, err error) bool { return status.Code(err) == codes.PermissionDenied }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			agent := &cnitest.Agent{}
			agent.Behave(tt.behaviour)
			agent.Listen(t, socket)
			tt.endpoint.socket = socket
			if r, err := askAdd(t, tt.endpoint); !tt.fails(r, err) {
				t.Errorf("got %v, %v", r, err)
			}
			if n := len(agent.Requests()); n > tt.asked || n < min(tt.asked, 2) {
				t.Errorf("asked %d times, want %d", n, tt.asked)
			}
		})
	}
	var err error
	took := stopwatch.Time(func() {
		_, err = askAdd(t, endpoint{socket: filepath.Join(t.TempDir(), "s"), unreachable: 4 * retryInterval})
	})
	if _, away := errors.AsType[*unreachableError](err); !away || took > 4*retryInterval+time.Second {
		t.Errorf("without an agent it ended after %s with %v", took, err)
	}
}
