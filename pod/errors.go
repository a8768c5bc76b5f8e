package pod

import (
	"errors"
	"fmt"

	"github.com/weftnet/weft/internal/line"
)

// Codes of CNI errors. The CNI specification defines those below 100. The others are Weft's and do not change.
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

// Error is an error with a code for the runtime. Its text is one line of bounded length: what failed, for which pod,
// why, what to do.
type Error struct {
	Code uint
	err  error
}

// Errorf returns an Error with the code. It formats like fmt.Errorf, with %w.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, err: fmt.Errorf(format, args...)}
}

// Error returns the line.
func (e *Error) Error() string { return line.Of(e.err.Error(), line.Cause) }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return errors.Unwrap(e.err) }
