package cni

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/internal/line"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Weft's own codes that do not come from the agent.
const (
	errTimeout         uint = 106
	errVersionMismatch uint = 107
)

// failed makes the runtime's error of a call that the agent did not serve, or that it refused.
func failed(what string, err error, answer *weftv1.Error) error {
	if err == nil {
		return types.NewError(uint(answer.GetCode()), answer.GetMsg(), answer.GetDetails())
	}
	if _, ok := errors.AsType[*unreachableError](err); ok {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "is weft-agent running?")
	}
	s := status.Convert(err)
	return types.NewError(codeOf(s.Code()), fmt.Sprintf("%s: %s", what, describe(s)), "gRPC "+s.Code().String())
}

func codeOf(c codes.Code) uint {
	switch c {
	case codes.DeadlineExceeded, codes.Canceled:
		return errTimeout
	case codes.Unavailable, codes.ResourceExhausted:
		return types.ErrTryAgainLater
	case codes.Unimplemented:
		return errVersionMismatch
	}
	return types.ErrInternal
}

func describe(s *status.Status) string {
	switch s.Code() {
	case codes.DeadlineExceeded:
		return "the agent did not answer in time"
	case codes.Unavailable:
		return "the agent went away or does not serve yet: " + s.Message()
	case codes.PermissionDenied:
		return "the agent refuses this caller: " + s.Message()
	case codes.Unimplemented:
		return "the agent does not know this call, it is older than the plugin: " + s.Message()
	}
	return s.Message()
}

// Runtimes take these words in an error of a DEL for success.
var (
	notFound   = regexp.MustCompile(`(?i)not[\s_-]*found`)
	noSuchFile = regexp.MustCompile(`(?i)no such file or directory`)
)

// presentable makes an error one line of bounded length, and safe for the verb that it answers.
func presentable(command string, e *types.Error) *types.Error {
	msg, rest, _ := strings.Cut(strings.TrimSpace(e.Msg), "\n")
	details := e.Details
	if details == "" {
		details = rest
	}
	msg, details = line.Of(msg, line.Error), line.Of(details, line.Error)
	if command == "DEL" {
		msg, details = safe(msg), safe(details)
	}
	return types.NewError(e.Code, msg, details)
}

func safe(text string) string {
	return noSuchFile.ReplaceAllString(notFound.ReplaceAllString(text, "missing"), "file is missing")
}
