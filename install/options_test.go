package install

import (
	"strings"
	"testing"
	"time"
)

func TestInvalidOptionsAreNamedByTheirFlag(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		why    string // "" = valid
	}{
		{"the defaults", func(*Options) {}, ""},
		{"a relative directory", func(o *Options) { o.BinDir = "bin" }, `--bin-dir "bin" is not an absolute path`},
		{"a file name with a directory", func(o *Options) { o.ConfName = "a/b.conflist" }, "--conf-name"},
		{"a file name without .conflist", func(o *Options) { o.ConfName = "10-weft.json" }, "--conf-name"},
		{"a hidden file name", func(o *Options) { o.ConfName = ".weft.conflist" }, "--conf-name"},
		{
			"an unknown mode", func(o *Options) { o.Mode = "main" },
			`--mode "main" is not one of primary, chained, delegate`,
		},
		{
			"extend in another mode", func(o *Options) { o.Extend = "/etc/x.conflist" },
			"--extend requires --mode chained",
		},
		{"extend a configuration of one plugin", chainedTo("/etc/x.conf"), "--extend /etc/x.conf: must be a .conflist"},
		{"extend a list", chainedTo("/etc/x.conflist"), ""},
		{
			"exclusive in another mode", func(o *Options) { chainedTo("/etc/x.conflist")(o); o.Exclusive = true },
			"--exclusive requires --mode primary",
		},
		{"no versions", func(o *Options) { o.Versions = nil }, "--cni-versions: at least one"},
		{"an unsupported version", func(o *Options) { o.Versions = []string{"0.2.0"} }, `--cni-versions: "0.2.0"`},
		{"a plugin with a path", func(o *Options) { o.Behind = []string{"../sh"} }, "--behind"},
		{
			"the bandwidth plugin", func(o *Options) { o.Behind = []string{"portmap", "bandwidth"} },
			"remove bandwidth: it cannot limit pods of Weft",
		},
		{"Weft after itself", func(o *Options) { o.Behind = []string{"weft-cni"} }, "--behind"},
		{"an unknown log level", func(o *Options) { o.LogLevel = "loud" }, "--cni-log-level"},
		{"a relative log file", func(o *Options) { o.LogFile = "log" }, "--cni-log-file"},
		{"a negative time", func(o *Options) { o.Wait = -time.Second }, "--wait -1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newNode(t).options()
			tt.change(&o)
			err := o.ValidateInstall()
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want %q", err, tt.why)
			}
		})
	}
}
