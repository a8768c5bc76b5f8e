package events

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesOfEventsAreValidHoweverLongTheObjectsNameIs(t *testing.T) {
	const suffix = ".0123456789abcdef"
	most := longestName - len(suffix)
	for _, object := range []string{
		"a", strings.Repeat("a", most), strings.Repeat("a", longestName),
		strings.Repeat("a", most-1) + "-b", strings.Repeat("a", most-1) + ".b", strings.Repeat("a", most-2) + "--b",
	} {
		if wrong := validation.IsDNS1123Subdomain(nameWith(object, suffix)); len(wrong) > 0 {
			t.Errorf("object of %d bytes: %v", len(object), wrong)
		}
	}
}
