package memif

import (
	"bytes"
	"crypto/subtle"
	"log/slog"
)

// secretSize is the size of the secret's field in INIT. VPP keeps the last byte for a NUL.
const secretSize = 24

// hidden is printed instead of a secret.
const hidden = "(secret)"

// Secret is what a client must know to connect to an interface: at most 24 bytes, 23 with VPP. The empty one asks for
// nothing. It prints as "(secret)".
type Secret string

// String hides the secret.
func (s Secret) String() string { return hidden }

// GoString hides the secret.
func (s Secret) GoString() string { return hidden }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// matches takes the same time whatever the peer sent.
func (s Secret) matches(got secretField) bool {
	want := secretFieldOf([]byte(s))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

type secretField [secretSize]byte

// secretFieldOf takes what stands before the first NUL.
func secretFieldOf(b []byte) secretField {
	var f secretField
	before, _, _ := bytes.Cut(b, []byte{0})
	copy(f[:], before)
	return f
}
