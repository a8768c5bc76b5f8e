package client

import (
	"strings"
)

// oneLine is an error that a user sees as a part of one line.
type oneLine struct{ error }

// Error is the error without line ends.
func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap gives the error as it was.
func (e oneLine) Unwrap() error { return e.error }

// OneLine returns err with its text in one line.
func OneLine(err error) error { return oneLine{err} }
