package kvscheduler

import (
	"errors"
	"fmt"
	"strings"
)

// failedOps are operations that failed for the same cause.
type failedOps struct {
	verb  Verb
	refs  []Ref
	cause error
}

// mostNamed is how many objects an error names, and how many different errors it holds.
const mostNamed = 8

// Error names the objects, and the cause once.
func (f *failedOps) Error() string {
	names := make([]string, 0, mostNamed)
	for _, r := range f.refs[:min(len(f.refs), mostNamed)] {
		names = append(names, r.String())
	}
	text := f.verb.String() + " " + strings.Join(names, ", ")
	if more := len(f.refs) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": " + f.cause.Error()
}

// Unwrap returns the cause.
func (f *failedOps) Unwrap() error { return f.cause }

// joined joins errors. Operations that failed for the same cause are one error.
func joined(errs []error) error {
	var list []error
	same := make(map[string]*failedOps)
	for _, err := range errs {
		f, isOps := err.(*failedOps) //nolint:errorlint // one that is wrapped says more than its cause
		if !isOps {
			list = append(list, err)
			continue
		}
		key := f.verb.String() + " " + f.cause.Error()
		if known := same[key]; known != nil {
			known.refs = append(known.refs, f.refs...)
			continue
		}
		group := &failedOps{verb: f.verb, refs: append([]Ref(nil), f.refs...), cause: f.cause}
		same[key] = group
		list = append(list, group)
	}
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed:mostNamed], fmt.Errorf("and %d more", more))
	}
	return errors.Join(list...)
}
