package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/internal/loopback"
)

// NoPage is the value of ui.socket that disables the page's unix socket.
const NoPage = "none"

// UI configures the operator's page.
type UI struct {
	Socket    string // of HTTP, mode 0600; NoPage: none
	Listen    string // loopback ADDRESS:PORT; "": none
	TokenFile string // for clients of Listen
}

func (u *UI) flags(fs *pflag.FlagSet) {
	fs.StringVar(&u.Socket, "ui-socket", "",
		"socket of the operator's page, root only; default: ui.sock in the directory of the agent's socket; none: no socket")
	fs.StringVar(&u.Listen, "ui-listen", "",
		"loopback address and port of the operator's page, for clients with the token; empty: none")
	fs.StringVar(&u.TokenFile, "ui-token-file", "",
		"file with the token of ui-listen, mode 0600, written at each start; default: ui-token in the directory of the agent's socket")
}

// fill sets the defaults that depend on other values.
func (u *UI) fill(socket string) {
	u.Socket = cmp.Or(u.Socket, filepath.Join(filepath.Dir(socket), "ui.sock"))
	u.TokenFile = cmp.Or(u.TokenFile, filepath.Join(filepath.Dir(socket), "ui-token"))
}

func (u *UI) validate() error {
	var errs []error
	if u.Socket != NoPage {
		errs = append(errs, absolute("ui.socket", u.Socket))
	}
	if u.Listen != "" {
		if err := loopback.Address(u.Listen); err != nil {
			errs = append(errs, fmt.Errorf("ui.listen: %w", err))
		}
	}
	return errors.Join(append(errs, absolute("ui.tokenFile", u.TokenFile))...)
}
