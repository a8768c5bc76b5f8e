// Package secret is a text that does not show itself.
package secret

import "log/slog"

// Text is a secret. Whatever prints, logs or encodes it gets a stand-in; who may have it converts it to string, which is
// easy to find in the sources. Texts compare with ==; who compares with what a stranger sent does so in constant time.
type Text string

// Hidden stands for a secret that is there.
const Hidden = "(secret)"

// String is the stand-in, or "" where there is no secret.
func (t Text) String() string {
	if t == "" {
		return ""
	}
	return Hidden
}

// GoString is the stand-in.
func (t Text) GoString() string { return t.String() }

// LogValue is the stand-in.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText is the stand-in, so that JSON and YAML show no secret either: who keeps one converts it.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
