package agent

import (
	"testing"
)

func TestStatusSaysWhatIsNotAsDesired(t *testing.T) {
	for _, tc := range []struct {
		name     string
		degraded []string
		objects  map[string]uint32
		want     string
	}{
		{"all is well", nil, map[string]uint32{"InSync": 7, "Observed": 2}, ""},
		{"something could not be undone", []string{"a/b"}, nil, "could not be undone or applied: a/b"},
		{"something failed and waits", nil, map[string]uint32{"Failed": 1, "Pending": 2}, "objects not as desired: 1 Failed, 2 Pending; weftctl objects lists them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if c := repaired(tc.degraded, tc.objects); c.Message != tc.want || c.Ok != (tc.want == "") {
				t.Errorf("got %v, %q", c.Ok, c.Message)
			}
		})
	}
}
