// Package secret has a text type that is redacted in output.
package secret

import "log/slog"

// Text is a secret. Printing, logging and encoding redact it. Code that needs the secret converts it to string, which
// is easy to find in the sources. Compare it with text of a client in constant time.
type Text string

// Hidden replaces a secret in output.
const Hidden = "(secret)"

// String returns Hidden, or "" without a secret.
func (t Text) String() string {
	if t == "" {
		return ""
	}
	return Hidden
}

// GoString returns String.
func (t Text) GoString() string { return t.String() }

// LogValue returns String.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns String, so that JSON and YAML are redacted, too. Code that stores a secret converts it first.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
