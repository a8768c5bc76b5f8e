package cni

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Modes in which Weft does not make the main interface.
const (
	modeChained  = "chained"
	modeDelegate = "delegate"
)

// earlier is what plugins before this one made. Only in a chain is it needed: the main plugin never fails because of it.
func (c *call) earlier() (*types100.Result, error) {
	if c.ipam {
		return nil, nil
	}
	prev, err := c.conf.prevResult()
	switch {
	case c.mode() != modeChained && err != nil:
		c.log.Warn("prevResult left out", "err", err)
	case c.mode() != modeChained:
	case err != nil:
		return nil, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	case prev == nil:
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			"mode chained needs prevResult, the result of the plugin before: weft-cni cannot be the first of its list", "")
	}
	return prev, nil
}

// unchanged is prevResult to the letter, where an ADD in a chain had nothing to add: what this library does not know
// of it is passed on as well. It is nil where there is something to add or to convert.
func (c *call) unchanged(answer *weftv1.AddReply) *verbatim {
	if c.mode() != modeChained || len(answer.GetInterfaces())+len(answer.GetIps())+len(answer.GetRoutes()) > 0 {
		return nil
	}
	var conf struct {
		Prev json.RawMessage `json:"prevResult"`
	}
	var prev struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(c.StdinData, &conf) != nil || json.Unmarshal(conf.Prev, &prev) != nil || prev.CNIVersion != c.conf.CNIVersion {
		return nil
	}
	return &verbatim{conf.Prev, os.Stdout}
}

// verbatim is a document that is printed as it came.
type verbatim struct {
	document []byte
	out      io.Writer
}

// Print prints it.
func (v *verbatim) Print() error {
	if _, err := v.out.Write(v.document); err != nil {
		return fmt.Errorf("print prevResult: %w", err)
	}
	return nil
}
