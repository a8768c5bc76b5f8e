package cni

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
)

// role is what the program is started as.
type role struct{ ipam bool }

// Names of the program. The second one is a link to the first.
const (
	pluginName = "weft-cni"
	ipamName   = "weft-ipam"
)

// roleOf knows the role by the name that the program was started by.
func roleOf(argv0 string) role { return role{ipam: filepath.Base(argv0) == ipamName} }

func (r role) name() string {
	if r.ipam {
		return ipamName
	}
	return pluginName
}

// ownObject is the object of the configuration that holds Weft's keys. Beside an IPAM plugin's own the keys are those
// of the plugin that calls it.
func (r role) ownObject(stdin []byte) ([]byte, error) {
	if !r.ipam {
		return stdin, nil
	}
	var outer struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &outer); err != nil {
		return nil, err
	}
	if outer.IPAM == nil {
		return nil, errors.New("there is no object ipam, which is that of " + ipamName)
	}
	return outer.IPAM, nil
}

// keys are those that the object may have.
func (r role) keys() []string {
	if !r.ipam {
		return slices.Concat(ownKeys, specKeys)
	}
	ofInterfaces := func(key string) bool {
		return slices.Contains([]string{"mode", "network", "interfaceType", "options"}, key)
	}
	known := slices.DeleteFunc(slices.Clone(ownKeys), ofInterfaces)
	return append(known, "type", "routes", "pool", "pools")
}

// where says in which object a key was read.
func (r role) where() string {
	if r.ipam {
		return " in ipam"
	}
	return ""
}

// network is the name under which attachments are kept. Addresses that Weft gives to another plugin's interface are an
// attachment of their own: the same list may have weft-cni too, for the same sandbox and interface name, and each is
// deleted in its turn.
func (r role) network(name string) string {
	if r.ipam {
		return name + "." + ipamName
	}
	return name
}

// mode is what Weft is to the sandbox.
func (r role) mode(c *conf) string {
	if r.ipam {
		return "ipam"
	}
	return c.Mode
}
