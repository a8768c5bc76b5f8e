package cni

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/cni/cnitest"
	"github.com/weftnet/weft/internal/retry"
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
	first := &cnitest.Agent{}
	second := &cnitest.Agent{}
	first.Behave(cnitest.Hang)
	stop := first.Listen(t, socket)
	served := make(chan error, 1)
	go func() {
		_, err := askAdd(t, endpoint{socket: socket, starting: time.Minute})
		served <- err
	}()
	for len(first.Requests()) == 0 {
		if retry.Pause(t.Context(), time.Millisecond) != nil {
			t.Fatal("the first agent was not asked")
		}
	}
	stop()
	_ = retry.Pause(t.Context(), 2*retryInterval) // no process listens for a while
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

func TestAskRetriesWhileNoProcessListens(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	served := make(chan error, 1)
	go func() {
		_, err := askAdd(t, endpoint{socket: socket, unreachable: time.Minute})
		served <- err
	}()
	_ = retry.Pause(t.Context(), 2*retryInterval)
	(&cnitest.Agent{}).Listen(t, socket)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestAskStopsRetryingWhenTheContextEnds(t *testing.T) {
	agent := &cnitest.Agent{}
	socket := filepath.Join(t.TempDir(), "s")
	agent.Behave(cnitest.Starting)
	agent.Listen(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 2*retryInterval)
	defer cancel()
	answer, err := ask(ctx, endpoint{socket: socket, starting: time.Hour}, weftv1.RemoteCNIClient.Add,
		&weftv1.AddRequest{})
	if err == nil && !isStarting(answer) || ctx.Err() == nil {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestPauseReportsWhetherTheTimeElapsed(t *testing.T) {
	if retry.Pause(t.Context(), time.Millisecond) != nil {
		t.Error("a millisecond did not elapse")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if retry.Pause(ctx, time.Hour) == nil {
		t.Error("an hour elapsed")
	}
}

func TestErrorOfAnUnreachableAgent(t *testing.T) {
	_, err := askAdd(t, endpoint{socket: filepath.Join(t.TempDir(), "s")})
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "/s") != 1 {
		t.Errorf("it names the path once, and wraps the kernel's error: %v", err)
	}
	if got := (&unreachableError{
		"/run/a.sock", errors.New("why"),
	}).Error(); got != "agent not reachable at /run/a.sock: why" {
		t.Error(got)
	}
}
