package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCodesOfFailedCalls(t *testing.T) {
	tests := map[string]struct {
		err  error
		code uint
		text string
	}{
		"no process listens": {
			&unreachableError{"/run/a.sock", context.DeadlineExceeded}, 11, "agent not reachable at /run/a.sock: ",
		},
		"too slow":        {status.Error(codes.DeadlineExceeded, "x"), 106, "did not answer in time"},
		"went away":       {status.Error(codes.Unavailable, "EOF"), 11, "went away"},
		"the caller left": {status.Error(codes.Canceled, "context canceled"), 106, "context canceled"},
		"queue is full":   {status.Error(codes.ResourceExhausted, "queue"), 11, "queue"},
		"not root":        {status.Error(codes.PermissionDenied, "user 7"), 999, "refuses this caller: user 7"},
		"old agent":       {status.Error(codes.Unimplemented, "unknown method"), 107, "older than the plugin"},
		"a panic":         {status.Error(codes.Internal, "panic: x"), 999, "panic: x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err, ok := errors.AsType[*types.Error](callError("add pod a/b eth0", tt.err, nil))
			if !ok || err.Code != tt.code || !strings.Contains(err.Msg, tt.text) {
				t.Errorf("code %d %q, want %d with %q", err.Code, err.Msg, tt.code, tt.text)
			}
		})
	}
}

func TestSanitizeReturnsOneLineWithoutNotFoundForADel(t *testing.T) {
	e := types.NewError(5, "open x: no such file or directory\ngoroutine 1", "Link NOT FOUND\nand NotFound")
	for command, want := range map[string]string{
		"ADD": "5 open x: no such file or directory | Link NOT FOUND; and NotFound",
		"DEL": "5 open x: file is missing | Link missing; and missing",
	} {
		p := sanitise(command, e)
		if got := fmt.Sprintf("%d %s | %s", p.Code, p.Msg, p.Details); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
