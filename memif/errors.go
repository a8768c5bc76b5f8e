package memif

import (
	"errors"
	"fmt"
)

// Causes of the end of a connection, wrapped in a DisconnectError.
var (
	// ErrIndex means that a ring's head or tail is impossible.
	ErrIndex = errors.New("ring index out of range")
	// ErrBuffer means that a client offered a buffer outside its memory, or one that is too small.
	ErrBuffer = errors.New("buffer out of range")
	// ErrDescriptors means that a peer kept sending mostly invalid descriptors.
	ErrDescriptors = errors.New("too many wrong descriptors")
	// ErrFault means that the peer's memory became inaccessible.
	ErrFault = errors.New("memory fault in a region")
	// ErrNotifications means that the notifications of a client took too long, because it watches its eventfds too
	// often.
	ErrNotifications = errors.New("notifications take too long")
	// ErrClosed means that this side closed the connection or the object.
	ErrClosed = errors.New("memif closed")
	// ErrIDInUse means that the listener has an interface with this id.
	ErrIDInUse = errors.New("memif id in use")
)

// DisconnectError is the reason of the end or refusal of a connection.
type DisconnectError struct {
	// Code is the protocol's code, usually 0.
	Code uint32
	// Reason is at most 95 bytes of text.
	Reason string
	// Remote means that the peer sent the reason.
	Remote bool
	// Err is the local cause, which is not sent to the peer.
	Err error
}

// Error names the side that ended the connection and the reason.
func (e *DisconnectError) Error() string {
	by := "disconnected"
	if e.Remote {
		by = "peer disconnected"
	}
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", by, e.Reason, e.Err)
	}
	return by + ": " + e.Reason
}

// Unwrap returns the local cause.
func (e *DisconnectError) Unwrap() error { return e.Err }

func refusal(reason string) *DisconnectError { return &DisconnectError{Reason: reason} }

// reasonOf returns the reason for the peer.
func reasonOf(err error) *DisconnectError {
	var known *DisconnectError
	if errors.As(err, &known) {
		return &DisconnectError{Code: known.Code, Reason: known.Reason}
	}
	for _, e := range []error{ErrIndex, ErrBuffer, ErrDescriptors, ErrFault, ErrNotifications} {
		if errors.Is(err, e) {
			return refusal(e.Error())
		}
	}
	return refusal("interface closed")
}
