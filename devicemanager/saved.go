package devicemanager

import "github.com/weftnet/weft/internal/secret"

// bucket is where the state file keeps allocations, by their id.
const bucket = "devices"

// Saved is an allocation as the state file keeps it. It holds the secret as it is: it is not to be shown.
type Saved struct {
	ID        string `json:"id"`
	Directory string `json:"directory"`
	Secret    string `json:"secret"`
	account
}

// String hides the secret from code that prints the whole value.
func (s Saved) String() string { return "allocation " + s.ID }

// GoString hides it too.
func (s Saved) GoString() string { return s.String() }

func (a *allocation) saved() Saved { return Saved{a.ID, a.Directory, string(a.Secret), accountOf(a)} }

func (s Saved) allocation() *allocation {
	a := s.account.allocation(s.ID, s.Directory)
	a.Secret = secret.Text(s.Secret)
	return a
}
