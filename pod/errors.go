package pod

import (
	"errors"
	"fmt"

	"github.com/weftnet/weft/internal/line"
)

// Codes of CNI errors. Those below 100 are the specification's, the others are Weft's own and a promise to users.
const (
	CodeInvalidEnvironment uint = 4
	CodeIO                 uint = 5
	CodeDecode             uint = 6
	CodeInvalidConfig      uint = 7
	CodeInvalidNetns       uint = 8
	CodeTryAgain           uint = 11
	CodeUnavailable        uint = 50
	CodeLimited            uint = 51
	CodePoolExhausted      uint = 100
	CodeAddressInUse       uint = 101
	CodeUnknownNetwork     uint = 102
	CodeInvalidAnnotation  uint = 103
	CodeDeviceMissing      uint = 104
	CodeRefused            uint = 105 // by the dataplane or the kernel
	CodeTimeout            uint = 106
	CodeVersionMismatch    uint = 107
)

// Error is an error that the runtime gets with a code of its own. Its text is one line: what, which pod, why, what to do. It is
// bounded, as it may quote what a pod's author wrote.
type Error struct {
	Code uint
	err  error
}

// Errorf makes an Error of the given code; %w works as in fmt.Errorf.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, err: fmt.Errorf(format, args...)}
}

// Error gives the line.
func (e *Error) Error() string { return line.Of(e.err.Error(), line.Cause) }

// Unwrap gives what Errorf wrapped.
func (e *Error) Unwrap() error { return errors.Unwrap(e.err) }
