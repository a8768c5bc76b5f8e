package secrets_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// markers are the secrets, by the place where they enter.
type markers map[string]string

// add makes a marker for a place.
func (m markers) add(where string) string {
	sum := sha256.Sum256([]byte(where))
	m[where] = "Zq" + hex.EncodeToString(sum[:8])
	return m[where]
}

// enough is the length of a part of a secret that counts as a leak, so that a truncated secret is found too.
const enough = 7

// in returns the entry places of the secrets that a text contains, in plain or in a usual encoding.
func (m markers) in(text string) (found []string) {
	for where, secret := range m {
		for _, disguise := range disguises(secret[:min(enough, len(secret))]) {
			if strings.Contains(text, disguise) {
				found = append(found, where)
				break
			}
		}
	}
	return found
}

// disguises are encodings of a text: plain, hexadecimal, and base64 with each of the three alignments.
func disguises(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text))}
	for _, before := range []string{"", "x", "xx"} {
		whole := len(before+text) / 3 * 3
		encoded := base64.StdEncoding.EncodeToString([]byte(before + text)[:whole])
		all = append(all, encoded[(len(before)*4+2)/3:])
	}
	return all
}

func TestSecretIsFoundInEachEncoding(t *testing.T) {
	m := markers{}
	secret := m.add("here")
	for name, text := range map[string]string{
		"plain": "a " + secret + " b", "shortened": secret[:enough] + "...",
		"hexadecimal":         hex.EncodeToString([]byte("a" + secret + "b")),
		"base64":              base64.StdEncoding.EncodeToString([]byte(secret + "b")),
		"base64 behind one":   base64.StdEncoding.EncodeToString([]byte("," + secret + "b")),
		"base64 behind two":   base64.StdEncoding.EncodeToString([]byte(":-" + secret + "b")),
		"base64 behind three": base64.StdEncoding.EncodeToString([]byte("abc" + secret)),
	} {
		if len(m.in(text)) != 1 {
			t.Errorf("%s: not found in %s", name, text)
		}
	}
	if found := m.in(strings.Repeat("Zq and abc ", 10)); len(found) > 0 {
		t.Errorf("found in a text without it")
	}
}
