// Package shop is measured.
package shop

// Cart has many fields. It is one whose booleans are a state.
type Cart struct {
	A, B, C, D          int
	E, F, G, H, I, J, K string
	Paid, Sent, Lost    bool
	Returned            bool
}

type Named interface{ Name() string }

// Name may have callers by the interface.
func (c *Cart) Name() string { return c.E }

// String has callers by an interface of the standard library.
func (c *Cart) String() string { return c.F }

// Weigh has a caller by an interface without a name.
func (c *Cart) Weigh() int { return c.B }

// The colours of a cart.
const (
	Red  = 1
	Blue = 2
)

// The sizes of a cart, which have no caller.
const (
	Small = 1
	Large = 2
)

// Unused has no caller.
func (c *Cart) Unused() {}

// Forgotten has no caller.
func Forgotten() {}

// Total is used by the command.
func Total(carts []Cart) (sum int) {
	for _, c := range carts {
		if c.Paid && !c.Lost || c.Returned {
			sum += c.A
		}
	}
	first, second := 1, 2
	return sum + first - second + Red
}

// A text.
const long = "a line that is longer than one hundred and twenty columns because its text goes on and on until it is there"

var _ = long
var _ Named = &Cart{}
var _ interface{ Weigh() int } = &Cart{}
