package memif

import (
	"errors"
	"fmt"
)

// What ends a connection because the peer broke the protocol. They travel in a DisconnectError.
var (
	// ErrIndex says that a ring's head or tail cannot be right.
	ErrIndex = errors.New("ring index out of range")
	// ErrBuffer says that a client offered a buffer outside its memory, or one too small to be used.
	ErrBuffer = errors.New("buffer out of range")
	// ErrDescriptors says that most of what a peer sent had descriptors of no packet, for long.
	ErrDescriptors = errors.New("too many wrong descriptors")
	// ErrFault says that memory of the peer's could not be touched any more.
	ErrFault = errors.New("memory fault in a region")
	// ErrClosed says that this side closed the connection or the object.
	ErrClosed = errors.New("memif closed")
	// ErrIDInUse says that the listener has an interface of that id.
	ErrIDInUse = errors.New("memif id in use")
)

// DisconnectError is why a connection ended or was refused.
type DisconnectError struct {
	// Code is the protocol's; 0 nearly everywhere.
	Code uint32
	// Reason is at most 95 bytes of text.
	Reason string
	// Remote says that the peer gave the reason.
	Remote bool
	// Err is what lies behind it, if this side knows more than it tells the peer.
	Err error
}

// Error says who ended the connection and why.
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

// Unwrap gives what lies behind it.
func (e *DisconnectError) Unwrap() error { return e.Err }

func refusal(reason string) *DisconnectError { return &DisconnectError{Reason: reason} }
