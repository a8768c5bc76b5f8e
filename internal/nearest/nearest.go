// Package nearest suggests the known name that a mistyped one probably stands for.
package nearest

import (
	"fmt"
	"strings"

	"github.com/agext/levenshtein"
)

// least is the similarity, from 0 to 1, below which two names are not a typing error of each other.
const least = 0.5

// Of returns the known name that is most similar to a name, without regard to case; "" if none is similar.
func Of(name string, known []string) string {
	best := ""
	most := least
	for _, k := range known {
		if m := levenshtein.Match(strings.ToLower(name), strings.ToLower(k), nil); m > most {
			best = k
			most = m
		}
	}
	return best
}

// Hint returns the end of an error about an unknown name: "; did you mean mtu?", or "" if no known name is similar.
func Hint(name string, known []string) string {
	best := Of(name, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}
