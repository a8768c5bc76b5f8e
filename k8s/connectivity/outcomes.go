package connectivity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/weftnet/weft/internal/probe"
	"github.com/weftnet/weft/k8s/exec"
)

// Limits of what a probe pod prints. Its node may be broken, or its image another one, so its output is foreign.
const (
	maxOutcome    = 16 << 10 // bytes of a line
	maxInterfaces = 64 << 10 // bytes of the list of interfaces
	maxFailure    = 4 << 10  // bytes of an error
	maxAddresses  = 8        // of an interface
)

// outcomes reads the outcomes of probes, one a line, and reports the first one of each probe.
type outcomes struct {
	report  func(probe.Outcome)
	missing []bool // by probe: whether its outcome is missing
	begun   []byte // a line without its end
	skipped bool   // the line is too long
}

func newOutcomes(probes int, report func(probe.Outcome)) *outcomes {
	return &outcomes{report: report, missing: slices.Repeat([]bool{true}, probes)}
}

// Write never fails: a line that is no outcome is skipped, and its probe is missing at the end.
func (o *outcomes) Write(p []byte) (int, error) {
	for rest := p; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if o.skipped = o.skipped || len(o.begun)+len(line) > maxOutcome; !o.skipped {
			o.begun = append(o.begun, line...)
		}
		if !ended {
			return len(p), nil
		}
		o.line()
		o.begun = o.begun[:0]
		o.skipped = false
		rest = after
	}
}

// line reports the line that has ended.
func (o *outcomes) line() {
	var one probe.Outcome
	if o.skipped || json.Unmarshal(o.begun, &one) != nil || one.ID < 0 || one.ID >= len(o.missing) ||
		!o.missing[one.ID] {
		return
	}
	o.missing[one.ID] = false
	o.report(one)
}

// complete returns an error if outcomes are missing.
func (o *outcomes) complete() error {
	all := len(o.missing)
	seen := 0
	for _, missing := range o.missing {
		if !missing {
			seen++
		}
	}
	if seen < all {
		return fmt.Errorf("the client pod reported %d of %d probes", seen, all)
	}
	return nil
}

// parseInterfaces reads the interfaces of a probe pod. Their names are shown, and their addresses are probed.
func parseInterfaces(output []byte) ([]probe.Interface, error) {
	var all []probe.Interface
	if err := json.Unmarshal(output, &all); err != nil {
		return nil, err
	}
	for _, i := range all {
		switch {
		case !isInterfaceName(i.Name):
			return nil, fmt.Errorf("invalid interface name %.40q", i.Name)
		case len(i.Addresses) > maxAddresses:
			return nil, fmt.Errorf("interface %s has %d addresses, at most %d are probed", i.Name, len(i.Addresses),
				maxAddresses)
		}
		for _, a := range i.Addresses {
			if !a.IsValid() || a.Zone() != "" || !a.IsGlobalUnicast() {
				return nil, fmt.Errorf("interface %s has the address %.50q, which is not probed", i.Name, a)
			}
		}
	}
	return all, nil
}

// isInterfaceName reports whether Linux allows the name.
func isInterfaceName(name string) bool {
	const most = 15 // IFNAMSIZ - 1
	invalid := func(r rune) bool { return r <= ' ' || r > unicode.MaxASCII-1 || r == '/' || r == ':' }
	return name != "" && len(name) <= most && name != "." && name != ".." && !strings.ContainsFunc(name, invalid)
}

// bounded keeps the beginning of a program's output.
func bounded(to io.Writer, most int) *exec.Bounded { return &exec.Bounded{To: to, Left: most} }
