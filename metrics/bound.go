package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weftnet/weft/internal/line"
)

// Bounds of label values and of label sets. Names of pods, pools and interfaces come from users, so without bounds a
// user could make a scrape arbitrarily large. docs/operations.md lists the bound of each metric.
const (
	maxVerbs      = 8
	maxCodes      = 64
	maxEvents     = 48
	maxPhases     = 16
	maxHandlers   = 32
	maxKinds      = 64
	maxResults    = 16
	maxConditions = 64
	maxPools      = 1024
	maxInterfaces = 4096
	maxLinks      = 8
	maxPeers      = 256
	maxErrors     = 1024
	maxPolicies   = 1024
	maxStates     = 16

	maxLabel = 253 // bytes of a label value: the longest name in Kubernetes
)

// Other is the label value of everything above a bound.
const Other = "other"

// values admits max different values of a label. The last one is Other, for all that come after the others.
type values struct {
	max int

	mu    sync.RWMutex
	known map[string]struct{}
}

func newValues(most int) *values { return &values{max: most, known: make(map[string]struct{}, 8)} }

// of returns the label value of a text.
func (v *values) of(text string) string {
	v.mu.RLock()
	_, known := v.known[text]
	v.mu.RUnlock()
	if known {
		return text
	}
	text = valid(text)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.known[text]; !known {
		if len(v.known) >= v.max-1 {
			return Other
		}
		v.known[text] = struct{}{}
	}
	return text
}

// first returns the first most keys of a map in their order, so that each scrape has the same ones, and the number of
// keys that are left out.
func first[K comparable, V any](all map[K]V, most int, compare func(K, K) int) (kept []K, left int) {
	kept = slices.SortedFunc(maps.Keys(all), compare)
	if len(kept) <= most {
		return kept, 0
	}
	return kept[:most], len(kept) - most
}

// firstNames is first for names.
func firstNames[V any](all map[string]V, most int) ([]string, int) {
	return first(all, most, cmp.Compare[string])
}

// valid returns a text as a label value: valid UTF-8 of at most maxLabel bytes.
func valid(text string) string {
	return strings.ToValidUTF8(line.Cut(text, maxLabel, "…"), "?")
}
