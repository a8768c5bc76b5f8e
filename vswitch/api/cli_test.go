package api

import (
	"testing"
	"unicode/utf8"
)

// FuzzCommand checks that the output of any command is bounded UTF-8 text.
func FuzzCommand(f *testing.F) {
	for _, line := range []string{
		"show version", "show int", "show errors", "show memif", "show trace", "clear trace", "trace add x 5",
		"trace add  x",
		"show bridge-domain 1 detail", "show bridge-domain 0", "show bridge-domainx",
		"show l2fib bd_id 1", "show l2fib verbose",
		"show ip neighbors", "show ip fib", "show ip fib table 7", "show ip6 fib index 1", "show ip fibx y",
		"\x00", "show \xff",
	} {
		f.Add(line)
	}
	r := prepare(f, Limits{})
	f.Fuzz(func(t *testing.T, line string) {
		if answer := command(r.model, line); !utf8.ValidString(answer) || len(answer) > 16<<10 {
			t.Errorf("%q returns %d bytes: %.200q", line, len(answer), answer)
		}
	})
}
