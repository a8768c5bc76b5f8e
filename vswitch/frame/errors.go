package frame

import "errors"

// Why a header was refused. They are compared, never wrapped: a worker allocates nothing.
var (
	ErrShort        = errors.New("shorter than its header")
	ErrVersion      = errors.New("wrong IP version")
	ErrHeaderLength = errors.New("header length out of range")
	ErrLength       = errors.New("length does not fit the frame")
	ErrFormat       = errors.New("fields out of range")
)
