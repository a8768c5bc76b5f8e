package memif

import "errors"

// reasonOf is what the peer is told of err.
func reasonOf(err error) *DisconnectError {
	var known *DisconnectError
	if errors.As(err, &known) {
		return &DisconnectError{Code: known.Code, Reason: known.Reason}
	}
	for _, e := range []error{ErrIndex, ErrBuffer, ErrDescriptors, ErrFault} {
		if errors.Is(err, e) {
			return refusal(e.Error())
		}
	}
	return refusal("interface closed")
}
