package secrets_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// markers are the secrets by where they came in.
type markers map[string]string

// add makes a marker for a place.
func (m markers) add(where string) string {
	sum := sha256.Sum256([]byte(where))
	m[where] = "Zq" + hex.EncodeToString(sum[:8])
	return m[where]
}

// enough is how many bytes of a secret are too many to be shown: who shortens a text does not hide it.
const enough = 7

// in gives where the secrets came in that are in the text, plainly or as bytes are often written.
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

// disguises are a text as it is, in hexadecimal, and in base64 at each of the three ways it can begin there.
func disguises(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text))}
	for _, before := range []string{"", "x", "xx"} {
		whole := len(before+text) / 3 * 3
		encoded := base64.StdEncoding.EncodeToString([]byte(before + text)[:whole])
		all = append(all, encoded[(len(before)*4+2)/3:])
	}
	return all
}

func TestASecretIsSeenWhateverItLooksLike(t *testing.T) {
	m := markers{}
	secret := m.add("here")
	for name, text := range map[string]string{
		"plain": "a " + secret + " b", "shortened": secret[:enough] + "...", "hexadecimal": hex.EncodeToString([]byte("a" + secret + "b")),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret + "b")), "base64 behind one": base64.StdEncoding.EncodeToString([]byte("," + secret + "b")),
		"base64 behind two": base64.StdEncoding.EncodeToString([]byte(":-" + secret + "b")), "base64 behind three": base64.StdEncoding.EncodeToString([]byte("abc" + secret)),
	} {
		if len(m.in(text)) != 1 {
			t.Errorf("%s: it is not seen in %s", name, text)
		}
	}
	if found := m.in(strings.Repeat("Zq and abc ", 10)); len(found) > 0 {
		t.Errorf("seen where it is not")
	}
}
