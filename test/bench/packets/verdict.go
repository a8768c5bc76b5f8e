package packets

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// aim is the range in which a figure should be.
type aim struct {
	text string
	met  func(float64) bool
}

func atMost(most float64) aim {
	return aim{fmt.Sprintf("at most %g", most), func(f float64) bool { return f <= most }}
}

func atLeast(least float64) aim {
	return aim{fmt.Sprintf("at least %g", least), func(f float64) bool { return f >= least }}
}

// beside allows the figure of a reference plus the measurement's accuracy.
func beside(other float64) aim {
	return aim{fmt.Sprintf("beside %.2f", other), func(f float64) bool { return f <= other+0.1 }}
}

// verdict is a figure with its aim.
type verdict struct {
	what, figure string
	aim          aim
	met          bool
}

type verdicts []verdict

func (v *verdicts) add(what string, a aim, figure float64, format string) {
	*v = append(*v, verdict{what, fmt.Sprintf(format, figure), a, a.met(figure)})
}

// report prints all aims.
func (v verdicts) report(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\naim of memif\tis to be\tis\t\n")
	for _, one := range v {
		met := "met"
		if !one.met {
			met = "missed"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", one.what, one.aim.text, one.figure, met)
	}
	return w.Flush()
}

// medianLoad sorts by cost per packet and returns the middle one.
func medianLoad(all []load) load {
	slices.SortFunc(all, func(a, b load) int { return cmp.Compare(a.rate().cost, b.rate().cost) })
	return all[len(all)/2]
}
