package devicemanager

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

const (
	idLength     = 20
	secretLength = 23 // plus a NUL this is the size of VPP's field

	alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

	// maxDraws bounds the search for an unused text: a duplicate means that the source is broken.
	maxDraws = 8
)

// factory makes new allocations. No other allocation has their ids, secrets and socket numbers.
type factory struct {
	table  *table
	root   string // parent of the allocations' directories
	random io.Reader
	now    func() time.Time
}

// newAllocation returns an allocation that no container has yet.
func (f *factory) newAllocation(id string, devices []string) (*allocation, error) {
	text, err := f.newSecret()
	if err != nil {
		return nil, fmt.Errorf("secret of the allocation: %w", err)
	}
	return &allocation{Allocation: pod.Allocation{
		ID: id, Socket: f.table.freeSocket(), Devices: devices, Directory: filepath.Join(f.root, id),
		Created: f.now().UTC().Round(0), Secret: text, GID: pod.UnknownGroup,
	}}, nil
}

// newID draws an id that no allocation has.
func (f *factory) newID() (string, error) {
	return f.draw(idLength, func(a *allocation, text string) bool { return a.ID == text })
}

// newSecret draws a secret that no allocation has.
func (f *factory) newSecret() (secret.Text, error) {
	text, err := f.draw(secretLength, func(a *allocation, text string) bool { return a.Secret == secret.Text(text) })
	return secret.Text(text), err
}

func (f *factory) draw(length int, has func(*allocation, string) bool) (string, error) {
	for range maxDraws {
		text, err := randomText(f.random, length)
		if err != nil {
			return "", err
		}
		taken := func(a *allocation) bool { return has(a, text) }
		if !slices.ContainsFunc(f.table.inOrder(), taken) {
			return text, nil
		}
	}
	return "", fmt.Errorf("the source of randomness repeats itself")
}

// randomText reads uniformly distributed letters and digits: it skips bytes beyond the last whole multiple of the
// alphabet.
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

// isRandomText reports whether randomText can have returned text.
func isRandomText(text string, length int) bool {
	return len(text) == length && strings.Trim(text, alphabet) == ""
}
