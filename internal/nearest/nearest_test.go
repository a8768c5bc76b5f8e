package nearest_test

import (
	"testing"

	"github.com/weftnet/weft/internal/nearest"
)

func TestHintNamesTheMostSimilarNameOrNone(t *testing.T) {
	known := []string{"cidrs", "mtu", "antiSpoof", "namespaces"}
	for name, want := range map[string]string{
		"cidr": "; did you mean cidrs?", "MTU": "; did you mean mtu?", "antispof": "; did you mean antiSpoof?",
		"zzz": "", "": "",
	} {
		if got := nearest.Hint(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := nearest.Of("mtu", nil); got != "" {
		t.Errorf("without known names: %q", got)
	}
}
