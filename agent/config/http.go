package config

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// HTTP configures the endpoint of metrics and health.
type HTTP struct {
	Listen string // host:port; "": none
}

func (h *HTTP) flags(fs *pflag.FlagSet) {
	fs.StringVar(&h.Listen, "http-listen", "127.0.0.1:9465", "address of /metrics, /healthz and /readyz; empty: none")
}

func (h *HTTP) validate() error {
	if h.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(h.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("http.listen: %q must be ADDRESS:PORT, such as 127.0.0.1:9465: %w", h.Listen, err)
	}
	return nil
}
