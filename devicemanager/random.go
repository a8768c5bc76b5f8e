package devicemanager

import (
	"fmt"
	"io"

	"github.com/weftnet/weft/internal/secret"
)

const (
	idLength     = 20
	secretLength = 23 // VPP's field holds these and a NUL

	alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

	// mostDraws bounds the search for what nobody has: more than one draw means that the reader is broken.
	mostDraws = 8
)

// newID draws a name for an allocation that none has.
func (m *Manager) newID() (string, error) {
	return m.draw(idLength, func(a *allocation, text string) bool { return a.ID == text })
}

// newSecret draws a secret that no allocation has.
func (m *Manager) newSecret() (secret.Text, error) {
	text, err := m.draw(secretLength, func(a *allocation, text string) bool { return a.Secret == secret.Text(text) })
	return secret.Text(text), err
}

func (m *Manager) draw(length int, has func(*allocation, string) bool) (string, error) {
	for range mostDraws {
		text, err := randomText(m.config.Rand, length)
		if err != nil {
			return "", err
		}
		taken := false
		for _, a := range m.inOrder() {
			taken = taken || has(a, text)
		}
		if !taken {
			return text, nil
		}
	}
	return "", fmt.Errorf("the source of randomness repeats itself")
}

// randomText reads letters and digits, each as likely as any other: bytes beyond the last whole alphabet are left out.
func randomText(from io.Reader, length int) (string, error) {
	const whole = 256 - 256%len(alphabet)
	text := make([]byte, 0, length)
	buffer := make([]byte, length)
	for range 64 {
		if _, err := io.ReadFull(from, buffer); err != nil {
			return "", fmt.Errorf("read randomness: %w", err)
		}
		for _, b := range buffer {
			if int(b) < whole && len(text) < length {
				text = append(text, alphabet[int(b)%len(alphabet)])
			}
		}
		if len(text) == length {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("the source of randomness repeats itself")
}

// isRandomText reports whether text may have come from randomText.
func isRandomText(text string, length int) bool {
	for _, c := range []byte(text) {
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (c < '0' || c > '9') {
			return false
		}
	}
	return len(text) == length
}
